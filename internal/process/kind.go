package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/job"
)

// Kind is a kind of job whose work a command does. Whatever is zero is not
// limited, unless said otherwise.
type Kind struct {
	Name string

	// Command is the program's absolute path and its arguments. It is never
	// touched by what a message says.
	Command []string

	// Directory is the program's working directory. Empty is a folder of the
	// job's own, which is removed with it.
	Directory string

	// Environment is what the program finds in its environment beside the base.
	Environment map[string]string

	// Pass names variables of the worker's own environment to hand on.
	Pass []string

	// Limits are kept by the worker.
	Limits job.Limits

	// Memory is what each process of the job may have of private writable
	// memory, in bytes; the operating system refuses more (RLIMIT_DATA).
	Memory int64

	// CPUTime is the processor time of each process of the job, in each of its
	// runs anew (RLIMIT_CPU).
	CPUTime time.Duration

	// Disk is how much the job may have in its folder, in bytes. A single file
	// cannot become larger (RLIMIT_FSIZE); the sum is looked at from time to time.
	Disk int64

	// MaxCheckpoint is the largest checkpoint, in bytes.
	// Default and most: [job.MaxStream].
	MaxCheckpoint int64

	// Tokens are the resources, such as https://storage.azure.com/, for which a
	// program gets access tokens of the worker's identity.
	Tokens []string

	// Files are what arguments named when the kinds file was read, such as a
	// script. A program that fails while one is missing tells nothing of its job.
	Files []string
}

// maxCheckpoint is the limit with its default.
func (k *Kind) maxCheckpoint() int64 {
	if k.MaxCheckpoint == 0 {
		return job.MaxStream
	}
	return k.MaxCheckpoint
}

// missing says what jobs of this kind need of the machine and do not find, nil
// if it is all there. A program that fails meanwhile tells nothing about its job.
func (k *Kind) missing() error {
	for _, program := range append([]string{k.Command[0]}, k.interpreter()...) {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the program of kind %s is missing: %w", k.Name, err)
		}
	}
	for _, file := range k.Files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("a file of kind %s is missing: %w", k.Name, err)
		}
	}
	return k.checkLimits()
}

// longestInterpreter is how much of a script's first line the kernel reads.
const longestInterpreter = 256

// interpreter returns the programs that the first line of a script names: one, or
// with env, which looks in PATH, two.
func (k *Kind) interpreter() []string {
	file, err := os.Open(k.Command[0])
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	head, _ := io.ReadAll(io.LimitReader(file, longestInterpreter))
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) < 2 || filepath.Base(words[0]) != "env" || k.Environment["PATH"] != "" {
		return words[:min(1, len(words))]
	}
	named := slices.IndexFunc(words[1:], func(word string) bool { return !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") })
	if named < 0 {
		return words[:1]
	}
	return []string{words[0], words[1+named]}
}

// filesOf returns the absolute paths of the arguments that name files on this
// machine.
func (k *Kind) filesOf(arguments []string) []string {
	var files []string
	for _, argument := range arguments {
		if !filepath.IsAbs(argument) && k.Directory == "" {
			continue // seen from the job's folder, which is empty
		}
		name := from(k.Directory, argument)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}
