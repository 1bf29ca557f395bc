// Package policy holds the deployment in infra/bicep to what docs/DESIGN.md
// promises of it: Spot with a price, no keys, the narrowest roles, names that
// are the code's own. It consists of tests only.
//
// It reads testdata/dump.json, every resource, module, parameter, variable and
// output of infra/bicep as the checker prints them, and where a rule is about
// words, the files themselves. tools/bicep.sh writes the dump again.
//
// # Decisions of the deployment, beyond those in docs/DESIGN.md
//
//   - Identities and roles exist before the first VM. A VM's own identity would race its role
//     assignments, so a scale set takes its identity from the module that assigned the roles.
//   - Workers are contributors of the queues they take from, and senders elsewhere: a queue's
//     Message Processor may not renew a message.
//   - The gallery reads the configuration from storage with its own identity. Two kinds of
//     workers are two applications with one package.
//   - There are three stages, each including the ones before, because the version needs
//     uploaded files and the files need an account. Each stage may be repeated.
//   - Orchestration is Flexible: it alone mixes sizes and priorities. Its VMs are resources of
//     their own, so a policy assigns the collection rule to their agents.
//   - Alerts come from the workers' metrics, because the service's message count of an account
//     is a day old. One queries the workers' log: no worker reports. A test compares it with
//     the worker's own lines.
//   - A failed installation fails the first deployment of a version, and none after it. Azure
//     repairs no VM whose provisioning failed, and reports success for a failed version that is
//     deployed again. So the deployment asks the workers for heartbeats, and leaves later
//     failures to the health probe.
//   - An installation is done when the worker has read its configuration and holds its port.
//     The platform never retries a failed version, and storage, roles and network may come
//     later. A script waits for the steps that cannot recover, the unit retries the rest.
//   - A release is unpacked next to the one in use and switched by a link, so a partial unpack
//     is never used.
//   - Soft delete stays off: a record is written at every save, and each would leave a copy.
//   - restoreEvicted, autoscale's view of evicted VMs and the gallery's reading of a
//     configuration are only documented, not tried. Each has a setting that does without.
//   - The fleet is Azure's own engine. With policy Delete the guide asks an operator to deploy
//     again, elsewhere and in another size.
package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	bicepFolder = "../bicep"
	dumpFile    = "testdata/dump.json"
)

// value is a literal, a list, an object, or an expression: {"$expr": "source"}.
type value = any

// file is one .bicep or .bicepparam file.
type file struct {
	Path      string
	Resources []resource
	Modules   []module
	Params    []param
	Variables []variable
	Outputs   []variable

	// source is the file's text.
	source string
}

type resource struct {
	Symbol     string
	Type       string
	APIVersion string
	Existing   bool
	Line       int
	Parent     string
	Scope      string
	Condition  string
	Loop       string
	Body       map[string]value
}

type module struct {
	Symbol    string
	Path      string
	Line      int
	Condition string
	Loop      string
	Body      map[string]value
}

type param struct {
	Name       string
	Line       int
	Type       string
	Default    value
	Value      value
	Decorators []string
}

type variable struct {
	Name       string
	Line       int
	Value      value
	Decorators []string
}

// deployment is all files, by their path below infra/bicep.
type deployment map[string]*file

// read takes the dump apart and adds each file's text from folder.
func read(dump []byte, folder string) (deployment, error) {
	var files []*file
	if err := json.Unmarshal(dump, &files); err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	d := deployment{}
	for _, f := range files {
		_, name, found := strings.Cut(f.Path, "infra/bicep/")
		if !found {
			return nil, fmt.Errorf("dump: %s is not in infra/bicep", f.Path)
		}
		text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		f.Path, f.source = name, string(text)
		for _, r := range f.Resources {
			f.expand(r.Body)
		}
		d[name] = f
	}
	return d, nil
}

// expand replaces properties that are a variable of the file by its value.
func (f *file) expand(body map[string]value) {
	for key, v := range body {
		if name, ok := at(v, "$expr").(string); ok {
			if known := named(f.Variables, name); known != nil {
				body[key] = known
			}
		}
	}
}

// committed returns the deployment of the committed dump.
func committed(t *testing.T) deployment {
	t.Helper()
	dump, err := os.ReadFile(dumpFile)
	if err != nil {
		t.Fatal(err)
	}
	d, err := read(dump, bicepFolder)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns the value at a path of keys in an object, or nil.
func at(v value, path ...string) value {
	for _, key := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[key]
	}
	return v
}

// text returns an expression's source, or a literal as Bicep writes it.
func text(v value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return "'" + v + "'"
	case map[string]any:
		if source, ok := v["$expr"].(string); ok {
			return strings.Join(strings.Fields(source), " ")
		}
	}
	return fmt.Sprint(v)
}

// named returns the variable or output of that name.
func named(list []variable, name string) value {
	for _, v := range list {
		if v.Name == name {
			return v.Value
		}
	}
	return nil
}
