package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/creack/pty"
)

// Terminal is the program
//
//	terminal FILE program args...
//
// which runs a program with a terminal of its own as input and error output, in which the
// content of FILE and an end of input are typed. It prints the terminal's output to its
// own error output, and exits as the program did. Unlike the command ttyin of
// testscripts it reads the terminal to its end.
func Terminal() {
	if err := terminal(os.Args[1], os.Args[2], os.Args[3:]...); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(125)
	}
}

func terminal(typed, program string, args ...string) error {
	input, err := os.ReadFile(typed)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), program, args...) //nolint:gosec // the program that the script names
	cmd.Stdout = os.Stdout
	screen, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	const endOfInput = 4
	if _, err := screen.Write(append(input, endOfInput)); err != nil {
		return err
	}
	_, _ = io.Copy(os.Stderr, screen) // ends with an error, once the program has left the terminal
	return cmd.Wait()
}
