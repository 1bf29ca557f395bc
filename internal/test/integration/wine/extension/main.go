// Command extension is a stand-in for Azure's VM application extension on Windows: it
// runs the command of a version as the extension's published source does, with cmd /C
// and the text as it is, in the version's folder, with the output in stdout and stderr
// there. As tar.exe, under which name tests run it too, it unpacks a zip archive, since
// Wine has no tar.
//
//	extension.exe FOLDER COMMAND
package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "extension:", err)
	}
	os.Exit(code)
}

func run() (code int, err error) {
	if strings.EqualFold(filepath.Base(os.Args[0]), "tar.exe") {
		return unpack(os.Args[len(os.Args)-1])
	}
	folder, command := os.Args[1], os.Args[2]
	stdout, err := os.Create(filepath.Join(folder, "stdout"))
	if err != nil {
		return 1, err
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(folder, "stderr"))
	if err != nil {
		return 1, err
	}
	defer stderr.Close()
	cmd := exec.CommandContext(context.Background(), "cmd")
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, stdout, stderr
	raw(cmd, "/C "+command)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// unpack unpacks an archive into the current folder, over existing files.
func unpack(name string) (code int, err error) {
	archive, err := zip.OpenReader(name)
	if err != nil {
		return 1, err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		if err := os.Remove(filepath.FromSlash(entry.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 1, err
		}
	}
	if err := os.CopyFS(".", archive); err != nil {
		return 1, err
	}
	return 0, nil
}
