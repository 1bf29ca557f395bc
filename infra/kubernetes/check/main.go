// Command check renders the variants of infra/kubernetes and checks the result without a
// cluster: each object is decoded strictly into the types of Kubernetes or KEDA, and the
// rules of this program hold. It prints the problems and ends with 1 if there are any.
//
//	check FOLDER
//
// It is a module of its own, since the types of Kubernetes and KEDA need many modules. It
// contacts no cluster.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// variants are the folders that a user applies, and whether each is also checked with the
// component shared-nodes.
var variants = []struct {
	folder string
	shared bool
}{{"deployment", false}, {"scaledobject", false}, {"scaledobject", true}, {"scaledjob", false}, {"scaledjob", true}}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check FOLDER")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
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
	for _, v := range variants {
		name, target := v.folder, v.folder
		if v.shared {
			name, target = v.folder+" with shared-nodes", "overlay-"+v.folder
			overlay := "resources: [../" + v.folder + "]\ncomponents: [../shared-nodes]\n"
			if err := files.WriteFile("/"+target+"/kustomization.yaml", []byte(overlay)); err != nil {
				return err
			}
		}
		set, found := render(files, "/"+target)
		if len(found) == 0 {
			found = set.check()
		}
		for _, p := range found {
			fmt.Fprintf(out, "%s: %s\n", name, p)
		}
		problems += len(found)
		objects += set.count
	}
	if problems > 0 {
		return fmt.Errorf("%d problems", problems)
	}
	fmt.Fprintf(out, "%d variants with %d objects\n", len(variants), objects)
	return nil
}

// load reads the YAML files below a folder into memory.
func load(folder string) (filesys.FileSystem, error) {
	files := filesys.MakeFsInMemory()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return files.WriteFile("/"+filepath.ToSlash(relative), content)
	})
	return files, err
}

// render builds a kustomization and decodes its objects. It returns the problems.
func render(files filesys.FileSystem, folder string) (*set, []string) {
	s := &set{}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, folder)
	if err != nil {
		return s, []string{"kustomize: " + err.Error()}
	}
	var problems []string
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return s, []string{err.Error()}
		}
		if err := s.decode(r.GetKind(), r.GetApiVersion(), text); err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %s", r.GetKind(), r.GetName(), strings.TrimSpace(err.Error())))
		}
	}
	return s, problems
}
