package workercmd

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/guard"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"worker":     func() { Main(Options{Arguments: os.Args[1:], Version: "v0.0.0-test"}) },
		"testworker": func() { Main(Options{Arguments: os.Args[1:], Version: "v0.0.0-test", Kinds: testKinds}) }, // see process_test.go
	})
}

// TestCommandLine runs the scripts in testdata/script: the output for a wrong or right
// configuration of the worker.
func TestCommandLine(t *testing.T) {
	server := storage.New(storage.Options{})
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("CONNECTION", connection)
			env.Setenv("TAKEN", taken.Addr().String())
			// Even if a script sets no endpoint, no worker asks Azure's own address.
			env.Setenv("SPOTWORKER_METADATA_ENDPOINT", guard.None)
			return nil
		},
	})
}

var errTest = errors.New("test")

func TestExitCodes(t *testing.T) {
	if got := cli.Code(&cli.ConfigError{Err: errTest}); got != 78 {
		t.Errorf("exit code of a wrong configuration = %d, want 78", got)
	}
	if got := cli.Code(errTest); got != 1 {
		t.Errorf("exit code of any other error = %d, want 1", got)
	}
}

// TestInstanceOfPod: a pod's UID becomes an instance. Other names stay as they are.
func TestInstanceOfPod(t *testing.T) {
	for name, want := range map[string]string{
		"6f3c2b1a-0c4d-4e5f-8a9b-0123456789ab": "6f3c2b1a0c4d4e5f8a9b0123456789ab",
		"6f3c2b1a0c4d4e5f8a9b0123456789ab":     "6f3c2b1a0c4d4e5f8a9b0123456789ab",
		"0":                                    "0",
		"a-b":                                  "a-b",
		"6f3c2b1a-0c4d-4e5f-8a9b-0123456789az": "6f3c2b1a-0c4d-4e5f-8a9b-0123456789az",
	} {
		if got := instanceOf(name); got != want {
			t.Errorf("instanceOf(%q) = %q, want %q", name, got, want)
		}
	}
}
