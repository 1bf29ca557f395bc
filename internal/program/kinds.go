package program

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// ReadKinds reads a kinds file, whose format docs/jobs.md describes. Relative paths in
// it start at the file's folder. An error names the file, line and column, the mistake
// and its correction.
func ReadKinds(file string) ([]Kind, error) {
	data, err := charset.ReadFile(file)
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
	return withoutPositions(kinds), jsonpos.Locate(file, data, err)
}

func withoutPositions(kinds []parsedKind) []Kind {
	all := make([]Kind, 0, len(kinds))
	for i := range kinds {
		all = append(all, kinds[i].Kind)
	}
	return all
}

// parsedKind is a kind with the positions of the values that locate checks.
type parsedKind struct {
	Kind
	command, resume, directory jsonpos.Value
	result                     string // as given
}

// parseKinds parses a kinds file without accessing the programs that it names.
func parseKinds(data []byte) ([]parsedKind, error) {
	top, err := jsonpos.Parse(data)
	if err != nil {
		return nil, err
	}
	members, ok := top.Data.(jsonpos.Object)
	if !ok {
		return nil, top.Errorf(`a kinds file is an object: {"kinds": {"NAME": {"command": ["PROGRAM"]}}}`)
	}
	var kinds []parsedKind
	var gpus []string
	for _, m := range members {
		switch m.Name {
		case "kinds":
			kinds, err = parseKindList(m.Value)
		case "gpus":
			gpus, err = parseGPUs(m.Value)
		default:
			err = unknown(m, []string{"gpus", "kinds"})
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range kinds {
		kinds[i].ListedGPUs = gpus
	}
	if len(kinds) == 0 {
		return nil, top.Errorf(`no kind of job is described here: {"kinds": {"NAME": {"command": ["PROGRAM"]}}}`)
	}
	return kinds, nil
}

func parseKindList(v jsonpos.Value) ([]parsedKind, error) {
	members, ok := v.Data.(jsonpos.Object)
	if !ok {
		return nil, v.Errorf(`give an object with one member for each kind: {"NAME": {"command": ["PROGRAM"]}}`)
	}
	var kinds []parsedKind
	for _, m := range members {
		k, err := parseKind(m)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

func parseKind(m jsonpos.Member) (parsedKind, error) {
	k := parsedKind{Kind: Kind{Name: m.Name}}
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
	switch {
	case k.FromMessage:
		k.ResultStdout = k.result != "file"
	case len(k.Command) == 0:
		return k, m.Value.Errorf(`it has no command: give "command": ["PROGRAM", "ARGUMENT"], or "message" for a command in each message`)
	}
	if err := k.checkMessage(); err != nil {
		return k, err
	}
	if err := k.checkSnapshot(m.Value); err != nil {
		return k, err
	}
	if err := k.checkGPUs(m.Value); err != nil {
		return k, err
	}
	return k, k.checkFolder()
}

// unknown returns the error for a name that is not one of the known ones.
func unknown(m jsonpos.Member, known []string) error {
	return m.Errorf("this name is not known here; allowed: %s", strings.Join(known, ", "))
}

// locate finds the command and the working directory, starting at the file's folder.
func (k *parsedKind) locate(folder string) (err error) {
	if k.Directory != "" {
		k.Directory = resolve(folder, k.Directory)
		if info, err := os.Stat(k.Directory); err != nil || !info.IsDir() {
			return k.directory.Errorf("%s is no folder on this machine", k.Directory)
		}
		if err := tree.CheckPath(k.Directory); err != nil {
			return k.directory.Errorf("%v", err)
		}
	}
	if k.FromMessage {
		return nil
	}
	if k.Command, err = locateCommand(folder, k.Command, k.command); err != nil {
		return err
	}
	k.Files = k.filesOf(k.Command[1:])
	if len(k.ResumeCommand) > 0 {
		if k.ResumeCommand, err = locateCommand(folder, k.ResumeCommand, k.resume); err != nil {
			return err
		}
		k.Files = append(k.Files, k.filesOf(k.ResumeCommand[1:])...)
	}
	return nil
}

// locateCommand returns a command with the absolute path of its program.
func locateCommand(folder string, command []string, v jsonpos.Value) ([]string, error) {
	program, err := findProgram(folder, command[0])
	if err != nil {
		return nil, v.Errorf("%v", err)
	}
	command = slices.Concat([]string{program}, command[1:])
	if err := tree.CheckCommand(command); err != nil {
		return nil, v.Errorf("%v", err)
	}
	return command, nil
}

// resolve makes a path absolute, relative to a folder.
func resolve(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

// Kind is a kind of job that a command does. A zero limit means none, unless stated
// otherwise.
type Kind struct {
	Name string

	// Command is the program's absolute path and its arguments. No message changes it, unless
	// FromMessage is set: then each message names its own (package command), and Command is empty.
	Command     []string
	FromMessage bool

	// ResultStdout makes the standard output the result of a program that writes none.
	ResultStdout bool

	// ResumeCommand replaces Command where the job has a checkpoint. Empty for a program that
	// looks for one itself.
	ResumeCommand []string

	// CheckpointFiles are patterns for files in the working folder: the checkpoint of a program
	// that knows nothing of the contract ([ownfiles]).
	CheckpointFiles []string

	// StopSignal asks the program to stop. 0 means SIGTERM.
	StopSignal syscall.Signal

	// Directory is the program's working directory. Default: a folder of the job's
	// own, which is removed at the job's end.
	Directory string

	// Environment is added to the program's environment.
	Environment map[string]string

	// Pass names variables of the worker's environment that the program gets too: those that
	// are null in a kinds file.
	Pass []string

	// Limits are enforced by the worker.
	Limits job.Limits

	// Memory is the memory of all processes of the job together, in bytes, with the system's
	// memory for them: on Linux with control groups (package tree), where the kernel ends all
	// of them when they exceed it, and on Windows. It also bounds the private writable memory
	// of each process (RLIMIT_DATA), which is all that counts without control groups.
	Memory int64

	// CPUs is how many processors all processes of the job may use at once. On Linux it
	// takes control groups.
	CPUs float64

	// Processes is how many processes and threads all processes of the job may have
	// together, on Windows processes. A job that reaches it has failed. On Linux it takes
	// control groups or a user of its own; as the worker's user a program is kept from the
	// tasks that the worker needs, and has no limit of its own.
	Processes int

	// GPUs is how many GPUs each job gets. The message of a job can ask for another number, where
	// FromMessage is set.
	GPUs int

	// ListedGPUs are the machine's GPUs, as the kinds file lists them: see [gpu.Config].
	ListedGPUs []string

	// Pool gives out the GPUs. Nil where no kind of the worker takes any.
	Pool *gpu.Pool

	// Disk is the size of the job's folder, in bytes. The operating system enforces it
	// for each file (RLIMIT_FSIZE; not on Windows); the sum is measured periodically.
	Disk int64

	// MaxCheckpoint is the largest checkpoint, in bytes. Default and maximum:
	// [job.MaxStream].
	MaxCheckpoint int64

	// Snapshot makes an unchanged program interruptible: it is frozen, and continued elsewhere
	// (package snapshot).
	Snapshot bool

	// SnapshotAtStop takes no snapshots while the program runs, only at a stop.
	SnapshotAtStop bool

	// Machine is this machine, by [CheckSnapshots], where Snapshot is set. The zero value is
	// not known: then only a restore finds out whether a snapshot fits.
	Machine machine.Facts

	// Outputs configures the program's output folder; nil gives it none.
	Outputs *Outputs

	// maxEntries bounds the files and folders of a checkpoint. 0 means [maxEntries].
	maxEntries int

	// Tokens are the resources, such as https://storage.azure.com/, for which a
	// program gets access tokens of the worker's identity.
	Tokens []string

	// Files are the files that the arguments name, such as a script, if they exist
	// when the kinds file is read. If one is missing later, a failure of the program
	// does not count as a failure of the job.
	Files []string
}

// system returns the limits that the operating system enforces.
func (k *Kind) system() tree.Limits {
	return tree.Limits{Memory: k.Memory, FileSize: k.Disk, TotalMemory: k.Memory, CPUs: k.CPUs, Tasks: k.Processes}
}

// errFull is the error of a job whose processes have reached their limit.
func (k *Kind) errFull() error {
	return fmt.Errorf("the processes and threads of the job reached the limit of %d (processes of its kind): a program that starts others "+
		"without end, or a limit that is too low", k.Processes)
}

// maxCheckpoint is the limit with its default.
func (k *Kind) maxCheckpoint() int64 {
	if k.MaxCheckpoint == 0 {
		return job.MaxStream
	}
	return k.MaxCheckpoint
}

// checkpointLimits are the limits on a checkpoint that is a folder.
func (k *Kind) checkpointLimits() archive.Limits {
	return archive.Limits{Bytes: k.maxCheckpoint(), Entries: cmp.Or(k.maxEntries, maxEntries), Names: maxNames}
}

// missing returns an error if this machine lacks a program or file that the kind
// needs. A failure of the command does not count as a failure of the job then.
func (k *Kind) missing() error {
	var programs []string
	if !k.FromMessage {
		programs = append([]string{k.Command[0]}, k.interpreter()...)
	}
	if len(k.ResumeCommand) > 0 {
		programs = append(programs, k.ResumeCommand[0])
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the program of kind %s is missing: %w", k.Name, err)
		}
	}
	for _, file := range k.Files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("a file of kind %s is missing: %w", k.Name, err)
		}
	}
	if err := k.system().Check(); err != nil {
		return fmt.Errorf("the limits of kind %s cannot be set: %w", k.Name, err)
	}
	return nil
}

// longestInterpreter is how many bytes of a script's first line the kernel reads.
const longestInterpreter = 256

// interpreter returns the programs in the first line of a script: one, or two with
// env, which searches PATH.
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
			continue // relative to the job's folder, which is empty
		}
		name := resolve(k.Directory, argument)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}

// Absent returns the arguments of the command that are absolute paths of nothing on this
// machine. Texts with white space are no paths: they may be commands of a shell.
func (k *Kind) Absent() []string {
	var paths []string
	for _, argument := range k.Command[min(1, len(k.Command)):] {
		if !filepath.IsAbs(argument) || strings.ContainsFunc(argument, unicode.IsSpace) ||
			k.Snapshot && strings.HasPrefix(argument, snapshot.Place+"/") {
			continue
		}
		if _, err := os.Stat(argument); errors.Is(err, fs.ErrNotExist) {
			paths = append(paths, argument)
		}
	}
	return paths
}

// CheckKinds validates a kinds file as [ReadKinds] does, but does not access the
// commands and folders that it names: they may be on another machine.
func CheckKinds(file string) error {
	data, err := charset.ReadFile(file)
	if err != nil {
		return fmt.Errorf("kinds file: %w", err)
	}
	_, err = parseKinds(data)
	return jsonpos.Locate(file, data, err)
}
