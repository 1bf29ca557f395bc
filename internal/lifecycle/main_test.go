package lifecycle

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the generated part of docs/lifecycle.md")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
