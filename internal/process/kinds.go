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

	"github.com/spotworker/spotworker/internal/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// ReadKinds reads a kinds file, whose form docs/process.md describes. Paths in
// it that are relative count from the file's folder. An error names the file,
// the place in it, what is wrong and what would be right.
func ReadKinds(file string) ([]Kind, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("kinds file: %w", err)
	}
	folder, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("kinds file: %w", err)
	}
	kinds, err := parseKinds(data)
	for i := 0; err == nil && i < len(kinds); i++ {
		err = kinds[i].locate(folder)
	}
	return described(kinds), jsonpos.Locate(file, data, err)
}

// described drops where in the file each kind stood.
func described(kinds []placedKind) []Kind {
	all := make([]Kind, 0, len(kinds))
	for i := range kinds {
		all = append(all, kinds[i].Kind)
	}
	return all
}

// placedKind is a kind and where in the file what is checked later stands.
type placedKind struct {
	Kind
	command, directory jsonpos.Value
}

// parseKinds reads a kinds file without looking at anything else.
func parseKinds(data []byte) ([]placedKind, error) {
	top, err := jsonpos.Parse(data)
	if err != nil {
		return nil, err
	}
	members, ok := top.Data.(jsonpos.Object)
	if !ok {
		return nil, top.Errorf(`a kinds file is an object: {"kinds": {"NAME": {"command": ["PROGRAM"]}}}`)
	}
	var kinds []placedKind
	for _, m := range members {
		if m.Name != "kinds" {
			return nil, unknown(m, []string{"kinds"})
		}
		if kinds, err = parseAll(m.Value); err != nil {
			return nil, err
		}
	}
	if len(kinds) == 0 {
		return nil, top.Errorf(`no kind of job is described here: {"kinds": {"NAME": {"command": ["PROGRAM"]}}}`)
	}
	return kinds, nil
}

func parseAll(v jsonpos.Value) ([]placedKind, error) {
	members, ok := v.Data.(jsonpos.Object)
	if !ok {
		return nil, v.Errorf(`give an object with one member for each kind: {"NAME": {"command": ["PROGRAM"]}}`)
	}
	var kinds []placedKind
	for _, m := range members {
		k, err := parseKind(m)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

func parseKind(m jsonpos.Member) (placedKind, error) {
	k := placedKind{Kind: Kind{Name: m.Name}}
	fields, ok := m.Value.Data.(jsonpos.Object)
	if !ok {
		return k, m.Value.Errorf(`give an object: {"command": ["PROGRAM", "ARGUMENT"]}`)
	}
	if err := checkKindName(m); err != nil {
		return k, err
	}
	for _, field := range fields {
		set, ok := settings[field.Name]
		if !ok {
			return k, unknown(field, settingNames())
		}
		if err := set(&k, field.Value); err != nil {
			return k, err
		}
	}
	if len(k.Command) == 0 {
		return k, m.Value.Errorf(`it has no command: give "command": ["PROGRAM", "ARGUMENT"]`)
	}
	return k, nil
}

// unknown says that a name is none, and which there are.
func unknown(m jsonpos.Member, known []string) error {
	return m.Errorf("this name is not known here; allowed: %s", strings.Join(known, ", "))
}

// locate finds the command and the working directory from the file's folder.
func (k *placedKind) locate(folder string) error {
	if k.Directory != "" {
		k.Directory = from(folder, k.Directory)
		if info, err := os.Stat(k.Directory); err != nil || !info.IsDir() {
			return k.directory.Errorf("%s is no folder on this machine", k.Directory)
		}
	}
	program, err := findProgram(folder, k.Command[0])
	if err != nil {
		return k.command.Errorf("%v", err)
	}
	k.Command = slices.Concat([]string{program}, k.Command[1:])
	k.Files = k.filesOf(k.Command[1:])
	return nil
}

// from returns a path as it is seen from a folder.
func from(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

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

// CheckKinds reads a kinds file as [ReadKinds] does, but does not look for the
// commands and folders that it names: they may be on another machine.
func CheckKinds(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("kinds file: %w", err)
	}
	_, err = parseKinds(data)
	return jsonpos.Locate(file, data, err)
}
