package chaos

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the worker of a run.
func TestMain(m *testing.M) {
	WorkerMain()
	goleak.VerifyTestMain(m)
}
