//go:build !windows

package main

import "os/exec"

// raw has no meaning here: the command is for Windows.
func raw(*exec.Cmd, string) {}
