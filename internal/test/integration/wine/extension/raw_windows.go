package main

import (
	"os/exec"
	"syscall"
)

// raw makes a command line of a program's name and this text, without quotes.
func raw(cmd *exec.Cmd, text string) { cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: text} }
