// Package script has commands for the testscripts of the command lines.
package script

import (
	"errors"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Status is the command status CODE program args..., which runs a program and
// demands its exit code.
func Status(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with %d, want %s", args[1], code, args[0])
	}
}
