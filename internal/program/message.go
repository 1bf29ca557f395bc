package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/ownfiles"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/job"
)

// MessageKind is the kind of a job whose message names the command, with those limits.
func MessageKind(name string) Kind {
	return Kind{Name: name, FromMessage: true, ResultStdout: true, Outputs: &Outputs{}}
}

// messageCommand is the value of command in a kinds file for jobs whose messages name it.
const messageCommand = "message"

// checkMessage returns an error for settings that contradict a command of the message.
func (k *parsedKind) checkMessage() error {
	switch {
	case !k.FromMessage:
		return nil
	case len(k.ResumeCommand) > 0:
		return k.resume.Errorf(`with "command": "message" the message's command resumes too, and finds its checkpoint: leave it out`)
	case k.Directory != "":
		return k.directory.Errorf(`with "command": "message" a command runs in the job's own folder, with the files that it brings: leave it out`)
	}
	return nil
}

// ofJob returns the kind as it holds for a job, with the command of the job's message.
func (k *Kind) ofJob(j *job.Job) (*Kind, []command.File, error) {
	if !k.FromMessage {
		return k, nil, nil
	}
	c, err := command.Parse(j.Payload)
	if err == nil {
		err = k.admits(&c)
	}
	if err != nil {
		return nil, nil, job.Permanent(fmt.Errorf("the message has no command that can run: %w", err))
	}
	of := *k
	of.Command, of.Environment, of.GPUs = c.Argv, maps.Clone(c.Environment), k.gpusOf(&c)
	if of.Environment == nil {
		of.Environment = map[string]string{}
	}
	maps.Copy(of.Environment, k.Environment)
	if len(c.Outputs) > 0 {
		settings := *k.Outputs
		settings.From = append(append([]string{}, settings.From...), c.Outputs...)
		of.Outputs = &settings
	}
	return &of, c.Files, nil
}

// admits returns why a kind does not let a message have a command.
func (k *Kind) admits(c *command.Command) error {
	set := append(slices.Collect(maps.Keys(k.Environment)), k.Pass...)
	for name := range c.Environment {
		if slices.ContainsFunc(set, func(own string) bool { return sameVariable(own, name) }) {
			return fmt.Errorf("variable %s is set by the kinds file: a message cannot change it", name)
		}
	}
	if k.Snapshot && k.gpusOf(c) > 0 {
		return fmt.Errorf("it asks for GPUs, and kind %s is frozen (snapshot), which a program with GPUs cannot be", k.Name)
	}
	if len(c.Outputs) > 0 && k.Outputs == nil {
		return fmt.Errorf("it names outputs, and kind %s has none on this worker", k.Name)
	}
	for _, pattern := range c.Outputs {
		if err := ownfiles.CheckPattern(pattern); err != nil {
			return fmt.Errorf("outputs: %w", err)
		}
	}
	return tree.CheckCommand(c.Argv)
}

// Exit codes of a shell for a command that it cannot start.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// findMessageProgram returns the path of the program of a message, in the PATH that the
// program gets or in its working folder. The error is permanent: it has the exit code that a shell
// would have.
func findMessageProgram(f *folder, name string, environment []string) (found string, err error) {
	err = f.User.Do(func() error {
		found, err = lookUp(f, name, environment)
		return err
	})
	code := exitNotFound
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, errNotExecutable):
		code = exitNotExecutable
		err = fmt.Errorf("%s is not executable: chmod +x, or give its interpreter first", name)
	case strings.ContainsAny(name, `/`+string(filepath.Separator)):
		err = fmt.Errorf("there is no program %s on this VM or in the job's working folder", name)
	default:
		err = fmt.Errorf("there is no program %s in the PATH of this VM; a program of the working folder is ./%s", name, name)
	}
	return "", job.OwnFault(job.Permanent(errors.New(command.WithCode(err.Error(), code))))
}

// lookUp looks for a program with the rights of the program's user.
func lookUp(f *folder, name string, environment []string) (string, error) {
	seen := f.asSeen()
	if strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		path, err := executable(resolve(f.work, name))
		if rest, ok := strings.CutPrefix(path, f.work); ok && err == nil {
			path = seen.work + rest
		}
		return path, err
	}
	var list string
	for _, variable := range environment {
		if key, text, _ := strings.Cut(variable, "="); sameVariable(key, "PATH") {
			list = text
		}
	}
	last := fs.ErrNotExist
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue // as Go does: a file of the working folder is named as ./NAME
		}
		path, err := executable(filepath.Join(dir, name))
		if err == nil {
			return path, nil
		}
		if errors.Is(err, errNotExecutable) {
			last = err
		}
	}
	return "", last
}

// errNotExecutable is the error of a file that is there and cannot be executed.
var errNotExecutable = errors.New("not executable")

// executable returns the path of a program.
func executable(path string) (string, error) {
	if onWindows {
		return exec.LookPath(path) // with the extensions of programs
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		return "", err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", errNotExecutable
	}
	return path, nil
}

// placeFiles places inputs in the working folder. What a restored checkpoint has there stays.
func (f *folder) placeFiles(ctx context.Context, j *job.Job, files []command.File) error {
	if f.frozen != nil {
		return nil // the program has them
	}
	inputs := map[string]string{}
	for _, in := range j.Inputs() {
		inputs[in.Name] = in.File
	}
	for _, file := range files {
		from, ok := inputs[file.Input]
		if !ok {
			return job.Permanent(fmt.Errorf("the message has no command that can run: files: the job has no input %.200q", file.Input))
		}
		if err := f.placeFile(ctx, from, file); err != nil {
			return fmt.Errorf("place %s: %w", file.Path, err)
		}
	}
	if f.place != "" {
		return nil // links of a frozen program are made with its namespace
	}
	return f.User.Do(func() error { return f.link(ownfiles.Inputs) })
}

// placeFile makes a file or a folder under another name, and moves it to its place.
func (f *folder) placeFile(ctx context.Context, from string, file command.File) error {
	local, err := filepath.Localize(file.Path)
	if err != nil {
		return job.Permanent(fmt.Errorf("no path of this system: %w", err))
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	made, to := filepath.Join(f.Dir, "placed"), filepath.Join(f.work, local)
	return f.User.Do(func() error {
		content := &stoppable{ctx: ctx, state: in}
		switch {
		case file.Folder:
			if err = os.Mkdir(made, 0o700); err == nil {
				err = archive.Extract(content, made, archive.Limits{Bytes: job.MaxStream, Entries: maxEntries, Names: maxNames})
			}
			if isDamaged(err) {
				err = job.Permanent(fmt.Errorf("the input %s is no archive of a folder: %w", file.Input, err))
			}
		default:
			if err = copyTo(made, content); err == nil && file.Executable {
				err = os.Chmod(made, 0o700) //nolint:gosec // the job's own
			}
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = merge(made, to)
		}
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) { // on each machine
			err = job.Permanent(err)
		}
		return errors.Join(err, removeAny(made))
	})
}

// merge moves a file or a folder to a place. It leaves what is there, and adds to folders.
func merge(from, to string) error {
	old, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Rename(from, to)
	}
	info, statErr := os.Lstat(from)
	if err := errors.Join(err, statErr); err != nil || !info.IsDir() || !old.IsDir() {
		return err
	}
	entries, err := os.ReadDir(from)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = merge(filepath.Join(from, entries[i].Name()), filepath.Join(to, entries[i].Name()))
	}
	return err
}

// placed are the inputs that are placed in the working folder alone.
func placed(files []command.File) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		names[f.Input] = true
	}
	return names
}
