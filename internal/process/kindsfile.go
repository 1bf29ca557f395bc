package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/jsonpos"
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
