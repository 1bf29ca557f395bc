package vmshare

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable makes this test binary one of the processes of a test.
const childVariable = "RUNTIMEDIR_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open takes a place in the folder until the test ends, with a clock that virtual
// time moves.
func open(t *testing.T, path, instance string) *Dir {
	t.Helper()
	start := time.Now().Add(-time.Hour)
	d, err := Open(t.Context(), Config{Path: path, Instance: instance, Boot: "boot", Clock: func() time.Duration { return time.Since(start) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
