package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// separator is the line between two objects.
var separator = regexp.MustCompile(`(?m)^---$`)

// template renders the chart in a folder as helm template does, and returns its objects as YAML.
func template(folder string, values map[string]any) ([][]byte, error) {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "spotworker", Namespace: "jobs", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return nil, err
	}
	var objects [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, text := range separator.Split(files[name], -1) {
			if strings.TrimSpace(text) != "" {
				objects = append(objects, []byte(text))
			}
		}
	}
	return objects, nil
}

// readChart decodes the objects of the chart and returns their problems. With built, the objects
// of kustomize, each difference is one.
func readChart(folder string, values map[string]any, built [][]byte) (*set, []string) {
	s := &set{}
	objects, err := template(folder, values)
	if err != nil {
		return s, []string{"helm: " + err.Error()}
	}
	var problems []string
	for _, text := range objects {
		var is struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal(text, &is); err != nil {
			return s, []string{"helm: " + err.Error()}
		}
		if err := s.decode(is.Kind, is.APIVersion, text); err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %s", is.Kind, is.Metadata.Name, strings.TrimSpace(err.Error())))
		}
	}
	if built != nil {
		problems = append(problems, differences(built, objects)...)
	}
	return s, problems
}

// differences compares the objects of kustomize and of the chart, in any order.
func differences(built, templated [][]byte) (problems []string) {
	want, err := byName(built)
	if err != nil {
		return []string{err.Error()}
	}
	got, err := byName(templated)
	if err != nil {
		return []string{err.Error()}
	}
	for name := range want {
		if !reflect.DeepEqual(want[name], got[name]) {
			problems = append(problems, fmt.Sprintf("%s differs: kustomize has\n%s\nthe chart has\n%s", name, text(want[name]), text(got[name])))
		}
	}
	for name := range got {
		if want[name] == nil {
			problems = append(problems, name+" is in the chart alone")
		}
	}
	slices.Sort(problems)
	return problems
}

func byName(objects [][]byte) (map[string]any, error) {
	all := map[string]any{}
	for _, text := range objects {
		var object map[string]any
		if err := yaml.Unmarshal(text, &object); err != nil {
			return nil, err
		}
		metadata, _ := object["metadata"].(map[string]any)
		delete(metadata, "namespace") // helm takes it from its command line
		name := fmt.Sprint(object["kind"], " ", metadata["name"])
		if all[name] != nil {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		all[name] = object
	}
	return all, nil
}

func text(object any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(object); err != nil {
		return err.Error()
	}
	return out.String()
}
