package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/text/charset"
)

// defaultKind is the name of the kind of a program without a kinds file.
const defaultKind = "try"

// candidate is the program that a trial runs.
type candidate struct {
	kind     string
	command  []string
	settings map[string]any // of the kind in the trial's own kinds file
	absolute []string       // arguments that were given as relative paths
	snapshot bool           // it is frozen with CRIU
}

// findProgram finds the program that is to be tried, and makes the settings of its kind.
func (c Config) findProgram() (candidate, error) {
	if c.KindsFile != "" {
		return c.fromKindsFile()
	}
	return c.fromCommand()
}

// fromCommand describes a program that was given with its arguments. On a VM its working
// directory is a folder of the job's own, so relative paths of existing files become
// absolute ones.
func (c Config) fromCommand() (candidate, error) {
	p := candidate{kind: defaultKind}
	path, err := exec.LookPath(c.Command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return p, explainMissing(c.Command[0], err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return p, err
	}
	p.command = []string{path}
	for _, argument := range c.Command[1:] {
		if _, err := os.Lstat(argument); err == nil && argument != "" && !filepath.IsAbs(argument) {
			if full, err := filepath.Abs(argument); err == nil {
				p.absolute = append(p.absolute, argument)
				argument = full
			}
		}
		p.command = append(p.command, argument)
	}
	p.settings = map[string]any{"command": p.command}
	p.prepare(c, false)
	if len(c.Environment) > 0 {
		p.settings["environment"] = c.Environment
	}
	p.limit()
	return p, nil
}

// explainMissing says what to do about a program that cannot be run.
func explainMissing(name string, err error) error {
	if info, statErr := os.Stat(name); statErr == nil && !info.IsDir() {
		return fmt.Errorf("%s is there and cannot be run (%w): make it executable (chmod +x), or give its interpreter first, as in: lab "+
			"try python3 %s", name, err, name)
	}
	return fmt.Errorf("there is no program %s: %w", name, err)
}

// fromKindsFile describes a kind as its file does, with paths that hold elsewhere.
func (c Config) fromKindsFile() (candidate, error) {
	var p candidate
	kinds, err := program.ReadKinds(c.KindsFile)
	if err != nil {
		return p, err
	}
	i := slices.IndexFunc(kinds, func(k program.Kind) bool { return k.Name == c.Kind || c.Kind == "" && len(kinds) == 1 })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Name)
		}
		if c.Kind == "" {
			return p, fmt.Errorf("%s has several kinds: name one with --kind: %s", c.KindsFile, strings.Join(names, ", "))
		}
		return p, fmt.Errorf("%s has no kind %q; it has %s", c.KindsFile, c.Kind, strings.Join(names, ", "))
	}
	k := kinds[i]
	if err := fitsTrial(k); err != nil {
		return p, err
	}
	p.kind, p.command = k.Name, k.Command
	data, err := charset.ReadFile(c.KindsFile)
	if err != nil {
		return p, err
	}
	var file struct{ Kinds map[string]map[string]any }
	if err := json.Unmarshal(data, &file); err != nil {
		return p, err // ReadKinds has read it: it has changed since
	}
	p.settings = file.Kinds[k.Name]
	if p.settings == nil {
		return p, fmt.Errorf("%s has changed while it was read", c.KindsFile)
	}
	p.settings["command"] = k.Command
	if len(k.ResumeCommand) > 0 {
		p.settings["resume_command"] = k.ResumeCommand
	}
	if k.Directory != "" {
		p.settings["directory"] = k.Directory
	}
	p.settings["environment"] = c.environmentOf(k)
	delete(p.settings, "gpus") // the only job sees those of this machine
	p.prepare(c, k.Snapshot)
	p.limit()
	return p, nil
}

// fitsTrial returns an error for a kind that a trial cannot judge.
func fitsTrial(k program.Kind) error {
	if k.FromMessage {
		return fmt.Errorf("kind %s takes its command from each message: try the command itself, lab try COMMAND", k.Name)
	}
	if len(k.Tokens) > 0 {
		return fmt.Errorf("kind %s has tokens of a managed identity, which there is none of on this machine: try it without tokens", k.Name)
	}
	return nil
}

// prepare sets how the program is frozen, and its outputs if they are compared.
func (p *candidate) prepare(c Config, snapshot bool) {
	var outputs any = true
	if p.snapshot = c.Snapshot || snapshot; p.snapshot {
		p.settings["snapshot"] = "criu"
		outputs = map[string]any{"from": []string{"*"}}
	}
	if c.Compare == CompareOutputs && p.settings["outputs"] == nil {
		p.settings["outputs"] = outputs
	}
}

// environmentOf returns the variables that a kind sets and passes on, and the variables
// of the flags.
func (c Config) environmentOf(k program.Kind) map[string]string {
	all := map[string]string{}
	for _, name := range k.Pass {
		if text, ok := os.LookupEnv(name); ok {
			all[name] = text
		}
	}
	maps.Copy(all, k.Environment)
	maps.Copy(all, c.Environment)
	return all
}

// limit makes the first failure the last: a trial does not wait for retries.
func (p *candidate) limit() {
	p.settings["max_failures"] = 1
	p.settings["concurrency"] = 1
	p.settings["backoff"] = "1s"
}

// reference is the kind of the undisturbed run with which an evicted one is compared: its program is
// not frozen.
func (p *candidate) reference() string {
	if !p.snapshot {
		return p.kind
	}
	return "undisturbed-" + p.kind[:min(len(p.kind), 20)]
}

// write writes a kinds file with that kind and its reference, and validates it.
func (p *candidate) write(folder string) (string, error) {
	kinds := map[string]any{p.kind: p.settings}
	if reference := p.reference(); reference != p.kind {
		settings := maps.Clone(p.settings)
		settings["snapshot"] = "criu-at-stop"
		kinds[reference] = settings
	}
	data, err := json.MarshalIndent(map[string]any{"kinds": kinds}, "", "  ")
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "kinds.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return "", err
	}
	_, err = program.ReadKinds(name)
	return name, err
}

// String is the command as a person would type it.
func (p *candidate) String() string {
	words := make([]string, len(p.command))
	for i, word := range p.command {
		if i == 0 {
			word = filepath.Base(word)
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}
