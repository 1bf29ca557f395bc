package policy

import (
	"fmt"
	"regexp"
	"testing"
)

// free are constants that other tests know, or that no deployment depends on: those of a
// key, of an owner in a file, or of a key there.
var free = map[string]string{
	"description": "for people",
	"displayName": "for people",

	"modules/metrics.bicep rule name":         "for people",
	"modules/monitoring.bicep columns":        "TestColumnsHoldEachKey compares them with the worker's log",
	"modules/prometheus-alerts.bicep rules":   "infra/alerts writes the file",
	"modules/prometheus-alerts.bicep group":   "infra/alerts writes the file",
	"modules/vm.bicep a function name":        "for people",
	"modules/storage-log.bicep blobLog name":  "for people",
	"modules/storage-log.bicep queueLog name": "for people",
	"modules/storage.bicep kept name":         "for people",
}

// functions is the file whose functions make properties. The dump has no functions.
const functions = "modules/vm.bicep"

var ofFunctions = regexp.MustCompile(`(?m)^ *(\w+): ('[^'$]*'|\d+|true|false)$`)

// constant is a property with a constant value in a resource or variable of one file. It
// stands for all such properties there of the same name and value.
type constant struct{ file, owner, key, text string }

func (c constant) String() string {
	return fmt.Sprintf("%s, %s: %s: %s", c.file, c.owner, c.key, c.text)
}

func (c constant) free() bool {
	owner := c.file + " " + c.owner
	return free[c.key] != "" || free[owner] != "" || free[owner+" "+c.key] != ""
}

// TestConstantsAreJudged changes each constant of the resources in turn. A rule must find
// that wrong, since a constant that no rule knows could be anything.
func TestConstantsAreJudged(t *testing.T) {
	d := committed(t)
	owners := map[constant][]map[string]any{}
	for name, f := range d {
		visit := func(c constant, owner map[string]any) { owners[c] = append(owners[c], owner) }
		for _, r := range f.Resources {
			constants(name, r.Symbol, r.Body, visit)
		}
		for _, v := range f.Variables {
			constants(name, v.Name, v.Value, visit)
		}
	}
	for _, m := range ofFunctions.FindAllStringSubmatch(d[functions].source, -1) {
		owners[constant{functions, "a function", m[1], m[2]}] = nil
	}
	judged := 0
	for c, objects := range owners {
		if c.free() {
			continue
		}
		judged++
		source, changed := d[c.file].source, "'wrong'"
		var right value
		if len(objects) > 0 {
			right = objects[0][c.key]
			changed = text(wrong(right))
		}
		for _, object := range objects {
			object[c.key] = wrong(right)
		}
		line := regexp.MustCompile(`(?m)(\b` + c.key + `: *)` + regexp.QuoteMeta(c.text) + `( |,|$)`)
		d[c.file].source = line.ReplaceAllString(source, "${1}"+changed+"$2")
		if !breaksRule(d) {
			t.Errorf("no rule knows the constant of %s", c)
		}
		for _, object := range objects {
			object[c.key] = right
		}
		d[c.file].source = source
	}
	if fewest := 100; judged < fewest {
		t.Errorf("%d constants, want %d at least", judged, fewest)
	}
	if breaksRule(d) {
		t.Errorf("the deployment was not restored: %v", judge(d))
	}
}

// breaksRule is judge for those who need no reasons.
func breaksRule(d deployment) (broken bool) {
	for _, rule := range rules {
		rule.check(d, func(string, int, string, ...any) { broken = true })
		if broken {
			return true
		}
	}
	return false
}

// constants visits the properties with constants in a value, and the objects that have them.
func constants(file, owner string, v value, visit func(c constant, owner map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			constants(file, owner, element, visit)
		}
	case map[string]any:
		for key, property := range v {
			switch property.(type) {
			case string, bool, float64:
				if key != "$expr" {
					visit(constant{file, owner, key, text(property)}, v)
				}
			default:
				constants(file, owner, property, visit)
			}
		}
	}
}

// wrong returns another constant of the same kind.
func wrong(v value) value {
	switch v := v.(type) {
	case bool:
		return !v
	case float64:
		return v + 1e5
	default:
		return "wrong"
	}
}
