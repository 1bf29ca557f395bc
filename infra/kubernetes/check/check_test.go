// Package check renders the variants of infra/kubernetes, with kustomize and with the chart of
// Helm, and checks the result without a cluster: each object is decoded strictly into the types
// of Kubernetes or KEDA, the rules of rules_test.go hold, and the chart has the same objects as
// the folders. It consists of tests only. make nightly-kubernetes runs them.
//
// It is a module of its own, since the types of Kubernetes and KEDA need many modules. It
// contacts no cluster.
package check

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// manifests is the folder with the variants and the chart.
const manifests = ".."

// variants are the folders that a user applies, and whether each is also checked with the
// component shared-nodes.
var variants = []struct {
	folder string
	shared bool
}{{"deployment", false}, {"scaledobject", false}, {"scaledobject", true}, {"scaledjob", false}, {"scaledjob", true}, {regularNodes, false}}

// regularNodes is the folder of the variant for the on-demand queue, in a namespace of its own.
const regularNodes = "regular-nodes"

// TestManifests: the committed manifests have no problem, and each mistake is one, in the chart too.
func TestManifests(t *testing.T) {
	if found := problems(t, manifests); len(found) > 0 {
		t.Fatal(strings.Join(found, "\n"))
	}
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(manifests)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, filepath.FromSlash(b.file))
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), b.old) {
				t.Fatalf("%s does not have %q", b.file, b.old)
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), b.old, b.wrong)), 0o600); err != nil {
				t.Fatal(err)
			}
			found := problems(t, dir)
			if !strings.Contains(strings.Join(found, "\n"), b.want) {
				t.Errorf("problems = %q, want one with %q", found, b.want)
			}
			if !slices.ContainsFunc(found, func(p string) bool { return strings.HasPrefix(p, "chart, ") }) {
				t.Errorf("problems = %q, want one of the chart", found)
			}
		})
	}
}

const (
	deployment   = "deployment/deployment.yaml"
	scaledJob    = "scaledjob/scaledjob.yaml"
	scaledObject = "scaledobject/scaledobject.yaml"
	settings     = "base/settings.yaml"
	shared       = "shared-nodes/deployment.yaml"
)

// broken are mistakes, each one edit of one file.
var broken = []struct{ name, file, old, wrong, want string }{
	{"a misspelt field of Kubernetes", deployment, "readOnlyRootFilesystem", "readOnlyRootFileSystem", "unknown field"},
	{"a misspelt field of KEDA", scaledObject, "cooldownPeriod", "coolDownPeriod", "unknown field"},
	{"an unknown kind", scaledJob, "kind: ScaledJob", "kind: ScaledJobs", "unknown type"},
	{"a long drain", settings, "DRAIN_BUDGET: 10s", "DRAIN_BUDGET: 25s", "want the drain budget"},
	{"no toleration", deployment, "effect: NoSchedule", "effect: NoExecute", "does not tolerate Spot"},
	{"a budget of none", "deployment/poddisruptionbudget.yaml", "maxUnavailable: 50%", "maxUnavailable: 0", "no node can be drained"},
	{"workers that start again", scaledJob, "backoffLimit: 0", "backoffLimit: 6", "beside KEDA"},
	{"acknowledged for others", settings, "ACKNOWLEDGE: never", "ACKNOWLEDGE: self", "all pods of the node"},
	{"two workers on a node", deployment, "topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", "share a node"},
	{"a patch of nothing", shared, "/spec/template/spec/volumes/-", "/spec/template/volumes/-", "kustomize"},
	{"root", deployment, "runAsUser: 65532", "runAsUser: 0", "as user 65532"},
	{"no identity", deployment, "azure.workload.identity/use", "azure.workload.identity/used", "no workload identity"},
	{"visible messages alone", scaledObject, "queueLengthStrategy: all", "queueLengthStrategy: visibleonly", "trigger azure-queue"},
	{"another Deployment", scaledObject, "TargetRef:\n    name: spotworker\n", "TargetRef:\n    name: worker\n", "scales no Deployment"},
	{"the cache fills the disk", settings, `INPUT_CACHE: "5"`, `INPUT_CACHE: "9"`, "half of the scratch"},
	{"the image's default name", "scaledjob/kustomization.yaml", "name: spotworker\n    newName", "name: worker\n    newName", "image is"},
}

// problems checks all variants below a folder.
func problems(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := load(folder)
	if err != nil {
		t.Fatal(err)
	}
	report := func(name string, s *set, found []string) {
		if len(found) == 0 {
			found = s.check()
		}
		for _, p := range found {
			all = append(all, name+": "+p)
		}
	}
	for _, v := range variants {
		name, target := v.folder, v.folder
		if v.shared {
			name, target = v.folder+" with shared-nodes", "overlay-"+v.folder
			overlay := "resources: [../" + v.folder + "]\ncomponents: [../shared-nodes]\n"
			if err := files.WriteFile("/"+target+"/kustomization.yaml", []byte(overlay)); err != nil {
				t.Fatal(err)
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
	return all
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
