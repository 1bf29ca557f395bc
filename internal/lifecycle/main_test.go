package lifecycle

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the generated part of docs/evictions.md")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
