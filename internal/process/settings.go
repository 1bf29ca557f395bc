package process

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/job"
)

// settings are what a kind in a kinds file may have.
var settings = map[string]func(*placedKind, value) error{
	"command":            (*placedKind).setCommand,
	"directory":          (*placedKind).setDirectory,
	"environment":        (*placedKind).setEnvironment,
	"pass_environment":   (*placedKind).setPass,
	"concurrency":        func(k *placedKind, v value) (err error) { k.Limits.Concurrency, err = v.count(); return err },
	"max_run":            func(k *placedKind, v value) (err error) { k.Limits.MaxRun, err = v.duration(); return err },
	"max_failures":       func(k *placedKind, v value) (err error) { k.Limits.MaxFailures, err = v.count(); return err },
	"max_total_failures": func(k *placedKind, v value) (err error) { k.Limits.MaxTotalFailures, err = v.count(); return err },
	"max_breaks":         func(k *placedKind, v value) (err error) { k.Limits.MaxBreaks, err = v.count(); return err },
	"backoff":            (*placedKind).setBackoff,
	"max_backoff":        (*placedKind).setMaxBackoff,
	"max_silence":        func(k *placedKind, v value) (err error) { k.Limits.MaxSilence, err = v.duration(); return err },
	"memory":             (*placedKind).setMemory,
	"cpu_time":           (*placedKind).setCPUTime,
	"disk":               func(k *placedKind, v value) (err error) { k.Disk, err = v.size(); return err },
	"max_checkpoint":     (*placedKind).setMaxCheckpoint,
	"tokens":             (*placedKind).setTokens,
}

func settingNames() []string { return slices.Sorted(maps.Keys(settings)) }

func (k *placedKind) setCommand(v value) (err error) {
	k.command = v
	if k.Command, err = v.texts(); err != nil {
		return err
	}
	if len(k.Command) == 0 || k.Command[0] == "" {
		return v.wrong("the program is missing: its name or path comes first")
	}
	return nil
}

func (k *placedKind) setDirectory(v value) (err error) {
	k.directory = v
	if k.Directory, err = v.text(); err == nil && k.Directory == "" {
		err = v.wrong("give a path, or leave it out for a folder of each job's own")
	}
	return err
}

func (k *placedKind) setEnvironment(v value) error {
	members, ok := v.is.(object)
	if !ok {
		return v.wrong(`give an object of names and texts: {"LANG": "C.UTF-8"}`)
	}
	k.Environment = map[string]string{}
	for _, m := range members {
		text, err := m.text()
		if err != nil {
			return err
		}
		if err := checkVariable(m.name); err != nil {
			return &fault{at: m.at, text: m.value.name + ": " + err.Error()}
		}
		k.Environment[m.name] = text
	}
	return nil
}

func (k *placedKind) setPass(v value) (err error) {
	if k.Pass, err = v.texts(); err != nil {
		return err
	}
	for _, name := range k.Pass {
		if err := checkVariable(name); err != nil {
			return v.wrong("%v", err)
		}
	}
	return nil
}

func (k *placedKind) setBackoff(v value) (err error) {
	if k.Limits.Backoff, err = v.duration(); err == nil {
		err = v.checked(k.Limits)
	}
	return err
}

func (k *placedKind) setMaxBackoff(v value) (err error) {
	if k.Limits.MaxBackoff, err = v.duration(); err == nil {
		err = v.checked(k.Limits)
	}
	return err
}

// checked says what is wrong with the limits that this value completes.
func (v value) checked(l job.Limits) error {
	if err := l.Validate(); err != nil {
		return v.wrong("%v", err)
	}
	return nil
}

func (k *placedKind) setMemory(v value) (err error) {
	if k.Memory, err = v.size(); err == nil && !hasLimits {
		err = v.wrong("this system does not limit the memory of a process; leave it out")
	}
	return err
}

func (k *placedKind) setCPUTime(v value) (err error) {
	if k.CPUTime, err = v.duration(); err == nil && !hasLimits {
		err = v.wrong("this system does not limit the processor time of a process; leave it out")
	}
	return err
}

func (k *placedKind) setMaxCheckpoint(v value) (err error) {
	k.MaxCheckpoint, err = v.size()
	if err == nil && k.MaxCheckpoint > job.MaxStream {
		err = v.wrong("a record holds at most %d GiB", int64(job.MaxStream)>>30)
	}
	return err
}

// setTokens takes resources as the identity platform names them: an address
// without a path, a query or a user.
func (k *placedKind) setTokens(v value) (err error) {
	if k.Tokens, err = v.texts(); err != nil {
		return err
	}
	for _, resource := range k.Tokens {
		u, err := url.Parse(resource)
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return v.wrong("%q is no resource: give an address such as https://storage.azure.com/", resource)
		}
	}
	return nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkVariable says what is wrong with a name in the environment.
func checkVariable(name string) error {
	switch {
	case !variableName.MatchString(name):
		return fmt.Errorf("%q is no name of a variable: give letters, digits and _", name)
	case slices.Contains(contract, name):
		return fmt.Errorf("%s is set by the worker for every job", name)
	}
	return nil
}

func checkKindName(m member) error {
	if err := jobid.ValidateKind(m.name); err != nil {
		return &fault{at: m.at, text: err.Error()}
	}
	return nil
}

// findProgram returns the absolute path of a program that is named as in a kinds
// file: with a slash it is a path, seen from the file's folder, without one it
// is looked up in the worker's PATH.
func findProgram(folder, name string) (string, error) {
	if !strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("there is no program %s in the worker's PATH; give its path, or install it", name)
		}
		return filepath.Abs(found)
	}
	path := from(folder, name)
	found, err := exec.LookPath(path)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("there is no program %s on this machine", path)
	case errors.Is(err, os.ErrPermission):
		return "", fmt.Errorf("%s must not be executed by the worker; chmod +x makes a program of it", path)
	default:
		return "", fmt.Errorf("%s is no program: %w", path, err)
	}
}
