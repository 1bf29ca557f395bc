package lifecycle

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the generated parts of docs/evictions.md and table.md")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
