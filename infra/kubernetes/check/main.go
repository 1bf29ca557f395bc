// Command check renders the variants of infra/kubernetes, with kustomize and with the chart of
// Helm, and checks the result without a cluster: each object is decoded strictly into the types
// of Kubernetes or KEDA, the rules of this program hold, and the chart has the same objects as
// the folders. It prints the problems and ends with 1 if there are any.
//
//	check FOLDER          all variants
//	check FOLDER VALUES   the chart with a file of values, which it prints
//
// It is a module of its own, since the types of Kubernetes and KEDA need many modules. It
// contacts no cluster.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// variants are the folders that a user applies, and whether each is also checked with the
// component shared-nodes.
var variants = []struct {
	folder string
	shared bool
}{{"deployment", false}, {"scaledobject", false}, {"scaledobject", true}, {"scaledjob", false}, {"scaledjob", true}, {regularNodes, false}}

// regularNodes is the folder of the variant for the on-demand queue, in a namespace of its own.
const regularNodes = "regular-nodes"

func main() {
	var err error
	switch len(os.Args) {
	case 2:
		err = run(os.Args[1], os.Stdout)
	case 3:
		err = runValues(os.Args[1], os.Args[2], os.Stdout)
	default:
		fmt.Fprintln(os.Stderr, "usage: check FOLDER [VALUES]")
		os.Exit(64)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// run checks all variants below a folder and prints their problems.
func run(folder string, out io.Writer) error {
	files, err := load(folder)
	if err != nil {
		return err
	}
	problems, objects := 0, 0
	report := func(name string, s *set, found []string) {
		if len(found) == 0 {
			found = s.check()
		}
		for _, p := range found {
			fmt.Fprintf(out, "%s: %s\n", name, p)
		}
		problems += len(found)
		objects += s.count
	}
	for _, v := range variants {
		name, target := v.folder, v.folder
		if v.shared {
			name, target = v.folder+" with shared-nodes", "overlay-"+v.folder
			overlay := "resources: [../" + v.folder + "]\ncomponents: [../shared-nodes]\n"
			if err := files.WriteFile("/"+target+"/kustomization.yaml", []byte(overlay)); err != nil {
				return err
			}
		}
		s, built, found := render(files, "/"+target)
		report(name, s, found)
		values := map[string]any{"scaling": v.folder, "sharedNodes": v.shared}
		if v.folder == regularNodes {
			values["scaling"], values["nodes"] = "scaledobject", "regular"
		}
		s, found = readChart(folder, values, built)
		report("chart, "+name, s, found)
	}
	if problems > 0 {
		return fmt.Errorf("%d problems", problems)
	}
	fmt.Fprintf(out, "%d variants, twice, with %d objects\n", len(variants), objects)
	return nil
}

// runValues checks the chart with a file of values, and prints its objects.
func runValues(folder, file string, out io.Writer) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		return err
	}
	objects, err := template(folder, values)
	if err != nil {
		return err
	}
	for _, text := range objects {
		fmt.Fprintf(out, "---%s", text)
	}
	s, found := readChart(folder, values, nil)
	if image, ok := values["image"].(string); ok {
		s.image = image
	}
	if len(found) == 0 {
		found = s.check()
	}
	if len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	return nil
}

// load reads the YAML files below a folder into memory.
func load(folder string) (filesys.FileSystem, error) {
	files, root := filesys.MakeFsInMemory(), os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return files.WriteFile("/"+name, content)
	})
	return files, err
}

// render builds a kustomization and decodes its objects. It returns them and the problems.
func render(files filesys.FileSystem, folder string) (s *set, objects [][]byte, problems []string) {
	s = &set{}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, folder)
	if err != nil {
		return s, nil, []string{"kustomize: " + err.Error()}
	}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return s, nil, []string{err.Error()}
		}
		objects = append(objects, text)
		if err := s.decode(r.GetKind(), r.GetApiVersion(), text); err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %s", r.GetKind(), r.GetName(), strings.TrimSpace(err.Error())))
		}
	}
	return s, objects, problems
}
