package replay

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadScenario(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{"fleet": {"vms": 100, "boot": "1m"}, "for": "7d"}`:   "",
		`{"fleet": {"vm": 100}}`:                               `s.json:1:12: fleet.vm: unknown key: did you mean "vms"?`,
		`{"for": "soon"}`:                                      `s.json:1:9: for: "soon"`,
		"{\n \"fleet\": {\n  \"availability\": 1}}":            "s.json:3:3: fleet.availability: unknown key; known here: vms, slots",
		`{"jobs": 1}`:                                          "s.json:1:2: jobs: unknown key",
		`{"fleet": {"vms": "9"}}`:                              "s.json:1:19: fleet.vms: give a whole number",
		`{"fleet": {"vms": 1.5}}`:                              "give a whole number",
		`{"fleet": {"vms": null}}`:                             "give a whole number",
		`{"fleet": {"vms": [1]}}`:                              "give a whole number",
		`{"fleet": {"vms": 1, "vms": 2}}`:                      "given twice",
		`{"fleet": {"price": "x"}}`:                            "give a number",
		`{"fleet": {"lives": 5}}`:                              "give a text",
		`{"fleet": {"$schema": "x"}}`:                          "unknown key",
		`{"work": {"works_while_saved": 1}}`:                   "give true or false",
		`{"work": {"save_time": 5}}`:                           "give a duration as a text",
		`{"seed": -1}`:                                         "not negative",
		`{"fleet": 7}`:                                         "give an object",
		`[]`:                                                   "give an object",
		`{"for"`:                                               "not JSON",
		`{"work": {"state_every": "1us"}}`:                     "s.json: a state every",
		`{"work": {"stop_time": "2h"}}`:                        "stop time",
		`{"$schema": "x", "fleet": {"vms": 100}, "for": "7d"}`: "",
		`{} {}`:                       "more text follows",
		`{"fleet": {"vms": -1}}`:      "-1 VMs",
		`{"fleet": {"slots": 0}}`:     "0 slots",
		`{"fleet": {"evictions": 0}}`: "0 evictions",
		`{"fleet": {"notice_30s": 0.9, "notice_short": 0.2}}`: "no more than 1",
		`{"fleet": {"boot": "-1s"}}`:                          "boot time",
		`{"fleet": {"price": -1}}`:                            "prices",
		`{"work": {"jobs": -1}}`:                              "-1 jobs",
		`{"work": {"load": 0}}`:                               "load 0",
		`{"work": {"job_time": "1ms"}}`:                       "job time",
		`{"work": {"save_time": "2h"}}`:                       "save time",
		`{"for": "1s"}`:                                       "time to replay",
		`{"for": "5y"}`:                                       "5y",
		`{"policy": {"visibility": "1s"}}`:                    "visibility",
		`{"policy": {"move_after": 1}}`:                       "0 regular VMs",
		`{"policy": {"no_checkpoints": true, "checkpoint_interval": "1m"}}`: "exclude",
		`{"policy": {"checkpoint_interval": "1h"}}`:                         "checkpoint interval",
		`{"policy": {"eviction_rate": 2}}`:                                  "eviction rate",
		`{"fleet": {"vms": 20000, "evictions": 100}, "for": "300d"}`:        "give fewer",
	} {
		s, err := ReadScenario("s.json", []byte(text))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err == nil && text != "{}" && (s.Fleet.VMs != 100 || s.Fleet.Slots != 1 || s.For.Duration != 168*hour) {
			t.Errorf("%s: %+v", text, s)
		}
	}
}

// schema is the part of a JSON schema of scenarios that is compared.
type schema struct {
	Type       string            `json:"type"`
	Ref        string            `json:"$ref"`
	Default    any               `json:"default"`
	Minimum    *float64          `json:"minimum"`
	Above      *float64          `json:"exclusiveMinimum"`
	Maximum    *float64          `json:"maximum"`
	Pattern    string            `json:"pattern"`
	Closed     *bool             `json:"additionalProperties"`
	Properties map[string]schema `json:"properties"`
	Defs       map[string]schema `json:"$defs"`
}

// TestSchema: the schema has the keys, defaults and bounds of scenarios.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("scenario.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var top schema
	if err := json.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(Default())
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := json.Unmarshal(text, &defaults); err != nil {
		t.Fatal(err)
	}
	delete(top.Properties, schemaKey)
	compareSchema(t, "", top, top.Defs, defaults)
	pattern := regexp.MustCompile(top.Defs["duration"].Pattern)
	for _, good := range []string{"35ms", "1h0m0s", "7d", "1d12h", "1.5s", "0"} {
		if !pattern.MatchString(good) || new(Duration).UnmarshalText([]byte(good)) != nil {
			t.Errorf("duration %q: by the pattern %t", good, pattern.MatchString(good))
		}
	}
	for _, bad := range []string{"soon", "5y", "", "5", "s"} {
		if pattern.MatchString(bad) || new(Duration).UnmarshalText([]byte(bad)) == nil {
			t.Errorf("duration %q: by the pattern %t", bad, pattern.MatchString(bad))
		}
	}
}

// compareSchema compares an object's schema with the object of the default scenario.
func compareSchema(t *testing.T, path string, of schema, defs map[string]schema, defaults map[string]any) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(of.Properties)), slices.Sorted(maps.Keys(defaults)); !slices.Equal(got, want) {
		t.Errorf("%s: the schema has the keys %q, a scenario %q", path, got, want)
	}
	if of.Type != "object" || of.Closed == nil || *of.Closed {
		t.Errorf("%s: the schema has the type %q and admits other keys", path, of.Type)
	}
	for name, p := range of.Properties {
		key := strings.TrimPrefix(path+"."+name, ".")
		if inner, ok := defaults[name].(map[string]any); ok {
			compareSchema(t, key, p, defs, inner)
			continue
		}
		if !reflect.DeepEqual(p.Default, defaults[name]) {
			t.Errorf("%s: default %v, want %v", key, p.Default, defaults[name])
		}
		if p.Ref != "" {
			p = defs[strings.TrimPrefix(p.Ref, "#/$defs/")]
		}
		wanted := map[string]string{"integer": "float64", "number": "float64", "string": "string", "boolean": "bool"}[p.Type]
		if got := reflect.TypeOf(defaults[name]).String(); got != wanted {
			t.Errorf("%s: type %q of the schema, %s of a scenario", key, p.Type, got)
		}
		for _, bound := range []struct {
			value *float64
			step  float64 // to a value outside
		}{{p.Minimum, -1}, {p.Above, 0}, {p.Maximum, 1}} {
			if bound.value == nil {
				continue
			}
			if err := scenarioWith(t, key, *bound.value+bound.step); err == nil {
				t.Errorf("%s: %g is valid, the schema's bound is %g", key, *bound.value+bound.step, *bound.value)
			}
			if err := scenarioWith(t, key, *bound.value); bound.step != 0 && err != nil && !isCombined(key) {
				t.Errorf("%s: %g is not valid: %v", key, *bound.value, err)
			}
		}
	}
}

// isCombined reports whether a bound of a key is valid only with other values of other keys.
func isCombined(key string) bool {
	return slices.Contains([]string{"work.load", "fleet.vms", "fleet.evictions"}, key)
}

// scenarioWith reads a scenario that differs from one without notices in one key.
func scenarioWith(t *testing.T, key string, value float64) error {
	t.Helper()
	text, err := json.Marshal(Default())
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	all["fleet"].(map[string]any)["notice_30s"] = 0
	at := all
	parent, name, nested := strings.Cut(key, ".")
	if nested {
		at = all[parent].(map[string]any)
	} else {
		name = parent
	}
	at[name] = value
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	_, err = ReadScenario("s.json", text)
	return err
}

// TestExamples: the example scenarios are valid and can be replayed.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/replay/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v, want three examples", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ReadScenario(file, data)
		if err != nil {
			t.Error(err)
			continue
		}
		s.Fleet.VMs, s.For.Duration = min(s.Fleet.VMs, 20), min(s.For.Duration, 48*time.Hour)
		if r, err := Run(t.Context(), s); err != nil || r.Done == 0 {
			t.Errorf("%s: %v, %+v", file, err, r)
		}
	}
}
