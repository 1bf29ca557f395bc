package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/text/durations"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// settings are the settings of a kind in a kinds file.
var settings = map[string]func(*parsedKind, jsonpos.Value) error{
	"command":          (*parsedKind).setCommand,
	"resume_command":   (*parsedKind).setResumeCommand,
	"checkpoint_files": (*parsedKind).setCheckpointFiles,
	"stop_signal":      (*parsedKind).setStopSignal,
	"directory":        (*parsedKind).setDirectory,
	"environment":      (*parsedKind).setEnvironment,
	"concurrency":      func(k *parsedKind, v jsonpos.Value) (err error) { k.Limits.Concurrency, err = asCount(v); return err },
	"max_run":          func(k *parsedKind, v jsonpos.Value) (err error) { k.Limits.MaxRun, err = asDuration(v); return err },
	"max_failures":     func(k *parsedKind, v jsonpos.Value) (err error) { k.Limits.MaxFailures, err = asCount(v); return err },
	"backoff":          (*parsedKind).setBackoff,
	"max_silence":      func(k *parsedKind, v jsonpos.Value) (err error) { k.Limits.MaxSilence, err = asDuration(v); return err },
	"memory":           (*parsedKind).setMemory,
	"cpus":             (*parsedKind).setCPUs,
	"processes":        func(k *parsedKind, v jsonpos.Value) (err error) { k.Processes, err = asCount(v); return err },
	"gpus":             func(k *parsedKind, v jsonpos.Value) (err error) { k.GPUs, err = asCount(v); return err },
	"disk":             func(k *parsedKind, v jsonpos.Value) (err error) { k.Disk, err = asSize(v); return err },
	"max_checkpoint":   (*parsedKind).setMaxCheckpoint,
	"tokens":           (*parsedKind).setTokens,
	"outputs":          (*parsedKind).setOutputs,
	"snapshot":         (*parsedKind).setSnapshot,
	"result":           (*parsedKind).setResult,
}

func settingNames() []string { return slices.Sorted(maps.Keys(settings)) }

func (k *parsedKind) setCommand(v jsonpos.Value) (err error) {
	if k.command = v; v.Data == messageCommand {
		k.FromMessage = true
		return nil
	}
	k.Command, err = asCommand(v)
	return err
}

func (k *parsedKind) setResumeCommand(v jsonpos.Value) (err error) {
	k.resume = v
	k.ResumeCommand, err = asCommand(v)
	return err
}

// asCommand reads a program and its arguments.
func asCommand(v jsonpos.Value) ([]string, error) {
	command, err := asTexts(v)
	if err == nil && (len(command) == 0 || command[0] == "") {
		err = v.Errorf("the program is missing: its name or path comes first")
	}
	return command, err
}

func (k *parsedKind) setDirectory(v jsonpos.Value) (err error) {
	k.directory = v
	if k.Directory, err = asText(v); err == nil && k.Directory == "" {
		err = v.Errorf("give a path, or leave it out for a folder of each job's own")
	}
	return err
}

func (k *parsedKind) setEnvironment(v jsonpos.Value) error {
	members, ok := v.Data.(jsonpos.Object)
	if !ok {
		return v.Errorf(`give an object of names and texts: {"LANG": "C.UTF-8"}; null passes the worker's own variable`)
	}
	k.Environment = map[string]string{}
	for _, m := range members {
		if err := checkVariable(m.Name); err != nil {
			return m.Errorf("%v", err)
		}
		if m.Value.Data == nil {
			k.Pass = append(k.Pass, m.Name)
			continue
		}
		text, err := asText(m.Value)
		if err != nil {
			return err
		}
		k.Environment[m.Name] = text
	}
	return nil
}

func (k *parsedKind) setBackoff(v jsonpos.Value) (err error) {
	if k.Limits.Backoff, err = asDuration(v); err == nil {
		if wrong := k.Limits.Validate(); wrong != nil {
			err = v.Errorf("%v", wrong)
		}
	}
	return err
}

func (k *parsedKind) setMemory(v jsonpos.Value) (err error) {
	if k.Memory, err = asSize(v); err == nil && !tree.HasLimits {
		err = v.Errorf("this system does not limit the memory of a process; leave it out")
	}
	return err
}

func (k *parsedKind) setCPUs(v jsonpos.Value) error {
	number, ok := v.Data.(json.Number)
	cpus, err := number.Float64()
	if !ok || err != nil || cpus < leastCPUs || cpus > mostCPUs {
		return v.Errorf("give a number of processors from %g to %d, such as 1.5, without quotes", leastCPUs, mostCPUs)
	}
	k.CPUs = cpus
	return nil
}

// Bounds of cpus: the kernel takes no less than a hundredth of a processor.
const (
	leastCPUs = 0.01
	mostCPUs  = 4096
)

func (k *parsedKind) setMaxCheckpoint(v jsonpos.Value) (err error) {
	k.MaxCheckpoint, err = asSize(v)
	if err == nil && k.MaxCheckpoint > job.MaxStream {
		err = v.Errorf("a record holds at most %d GiB", int64(job.MaxStream)>>30)
	}
	return err
}

// setTokens accepts resources as the identity platform names them: an https address
// without path, query or user.
func (k *parsedKind) setTokens(v jsonpos.Value) (err error) {
	if k.Tokens, err = asTexts(v); err != nil {
		return err
	}
	for _, resource := range k.Tokens {
		u, err := url.Parse(resource)
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return v.Errorf("%q is no resource: give an address such as https://storage.azure.com/", resource)
		}
	}
	return nil
}

// checkVariable validates the name of an environment variable.
func checkVariable(name string) error {
	switch {
	case !command.IsVariable(name):
		return fmt.Errorf("%q is not the name of a variable: give letters, digits and _", name)
	case slices.ContainsFunc(contract, func(own string) bool { return sameVariable(own, name) }):
		return fmt.Errorf("%s is set by the worker for every job", name)
	}
	return nil
}

func checkKindName(m jsonpos.Member) error {
	if err := jobid.ValidateKind(m.Name); err != nil {
		return jsonpos.Errorf(m.Offset, "%v", err)
	}
	return nil
}

// findProgram returns the absolute path of a program in a kinds file. A name with a
// slash is a path that starts at the file's folder; a name without one is searched
// in the worker's PATH.
func findProgram(folder, name string) (string, error) {
	if !strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("there is no program %s in the worker's PATH; give its path, or install it", name)
		}
		return filepath.Abs(found)
	}
	path := resolve(folder, name)
	found, err := exec.LookPath(path)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound) && !isThere(path): // the latter on Windows
		return "", fmt.Errorf("there is no program %s on this machine", path)
	case errors.Is(err, os.ErrPermission):
		return "", fmt.Errorf("the worker may not execute %s; chmod +x makes it executable", path)
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s is not a program: Windows starts .exe, .com, .bat and .cmd files; give the interpreter of others first", path)
	default:
		return "", fmt.Errorf("%s is not a program: %w", path, err)
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// units are the units of sizes. Decimal units are left out, because GB is often
// meant as GiB.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// asSize reads a size such as "512MiB", which must not be 0.
func asSize(v jsonpos.Value) (int64, error) {
	text, ok := v.Data.(string)
	if !ok {
		return 0, v.Errorf(`give a size in quotes, such as "512MiB"`)
	}
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		return n * unit.bytes, nil
	}
	return 0, v.Errorf("%q is no size: give a whole number above 0 with B, KiB, MiB, GiB or TiB, such as \"512MiB\"", text)
}

// asDuration reads a time such as "10m", which must not be 0.
func asDuration(v jsonpos.Value) (time.Duration, error) {
	text, ok := v.Data.(string)
	if !ok {
		return 0, v.Errorf(`give a duration in quotes, such as "10m"`)
	}
	d, err := durations.Parse(text)
	if err != nil || d <= 0 {
		return 0, v.Errorf("%q is no duration: give a number above 0 with s, m, h or d, such as \"10m\" or \"1h30m\"", text)
	}
	return d, nil
}

func asText(v jsonpos.Value) (string, error) {
	text, ok := v.Data.(string)
	if !ok {
		return "", v.Errorf("give a text in quotes")
	}
	if strings.ContainsRune(text, 0) {
		return "", v.Errorf("a text for the operating system must not have a NUL in it")
	}
	return text, nil
}

// asCount reads a whole number above 0.
func asCount(v jsonpos.Value) (int, error) {
	number, ok := v.Data.(json.Number)
	if ok {
		if n, err := number.Int64(); err == nil && n > 0 && n <= math.MaxInt32 {
			return int(n), nil
		}
	}
	return 0, v.Errorf("give a whole number above 0, without quotes")
}

func asBool(v jsonpos.Value) (bool, error) {
	yes, ok := v.Data.(bool)
	if !ok {
		return false, v.Errorf("give true or false, without quotes")
	}
	return yes, nil
}

func asTexts(v jsonpos.Value) ([]string, error) {
	list, ok := v.Data.([]jsonpos.Value)
	if !ok {
		return nil, v.Errorf(`give a list of texts, such as ["a", "b"]`)
	}
	var all []string
	for _, item := range list {
		text, err := asText(item)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}
