package policy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// free are constants that other tests know, or that no deployment depends on: those of a
// key, of an owner in a file, or of a key there.
var free = map[string]string{
	"description": "for people",
	"displayName": "for people",
	"parent":      "the dump has it beside the body",
	"scope":       "the dump has it beside the body",

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

// constant is a property with a constant or an expression in a resource or variable of one
// file. It stands for all such properties there of the same name and value.
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
	// What the properties of one name in one file are: each may stand in another's place.
	values := map[[2]string][]value{}
	for c, objects := range owners {
		if len(objects) > 0 {
			name := [2]string{c.file, c.key}
			values[name] = append(values[name], objects[0][c.key])
		}
	}
	judged := 0
	for c, objects := range owners {
		if c.free() {
			continue
		}
		judged++
		var right value
		if len(objects) > 0 {
			right = objects[0][c.key]
		}
		source := d[c.file].source
		line := regexp.MustCompile(`(?m)(\b` + regexp.QuoteMeta(c.key) + `: *)` + inSource(c.text) + `(\s|,|$)`)
		others := []value{wrong(right)}
		if c.key != "name" {
			others = append(others, values[[2]string{c.file, c.key}]...)
		}
		for _, other := range others {
			if text(other) == c.text {
				continue
			}
			for _, object := range objects {
				object[c.key] = other
			}
			d[c.file].source = line.ReplaceAllString(source, "${1}"+strings.ReplaceAll(text(other), "$", "$$")+"$2")
			if !breaksRule(d) {
				t.Errorf("no rule finds %s wrong where it is %s", text(other), c)
			}
			for _, object := range objects {
				object[c.key] = right
			}
			d[c.file].source = source
		}
	}
	if fewest := 100; judged < fewest {
		t.Errorf("%d constants, want %d at least", judged, fewest)
	}
	if breaksRule(d) {
		t.Errorf("the deployment was not restored: %v", judge(d))
	}
}

// inSource is a pattern of a value in its file, over any number of lines.
func inSource(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	return strings.Join(words, `\s+`)
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

// constants visits the properties with constants and expressions in a value, and the objects
// that have them.
func constants(file, owner string, v value, visit func(c constant, owner map[string]any)) {
	if at(v, "$expr") != nil {
		return // a rule about its words has to know it
	}
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			constants(file, owner, element, visit)
		}
	case map[string]any:
		for key, property := range v {
			switch property.(type) {
			case string, bool, float64:
				visit(constant{file, owner, key, text(property)}, v)
			default:
				if at(property, "$expr") != nil {
					visit(constant{file, owner, key, text(property)}, v)
				} else {
					constants(file, owner, property, visit)
				}
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
	case map[string]any:
		return map[string]any{"$expr": "wrong"}
	default:
		return "wrong"
	}
}
