package azure

import (
	"strings"
	"testing"
)

func TestNamesFor(t *testing.T) {
	for _, row := range []struct {
		prefix, queue string
		want          Names
	}{
		{DefaultPrefix, "", Names{"spotworker-jobs", "spotworker-jobs-first", "spotworker-jobs-ondemand", "spotworker-jobs-poison",
			"spotworker-jobs",
			"spotworker-payloads", "spotworker-workers", "spotworker-control", "spotworker-outputs"}},
		{"team1", "render", Names{"render", "render-first", "render-ondemand", "render-poison", "team1-jobs", "team1-payloads",
			"team1-workers", "team1-control",
			"team1-outputs"}},
	} {
		if got, err := NamesFor(row.prefix, row.queue); got != row.want || err != nil {
			t.Errorf("NamesFor(%q, %q) = %+v, %v, want %+v", row.prefix, row.queue, got, err, row.want)
		}
	}
	for name, row := range map[string][2]string{
		"no prefix":                              {"", ""},
		"capitals":                               {"Team", ""},
		"underscore":                             {"a_b", ""},
		"dash at the start":                      {"-a", ""},
		"dash at the end":                        {"a", "b-"},
		"two dashes":                             {"a--b", ""},
		"letter of elsewhere":                    {"é", ""},
		"queue too short":                        {"a", "b"},
		"queue too long for its on-demand queue": {"a", strings.Repeat("q", 55)},
		"prefix too long":                        {strings.Repeat("p", 55), "jobs"},
	} {
		if got, err := NamesFor(row[0], row[1]); err == nil || got != (Names{}) {
			t.Errorf("%s: NamesFor(%q, %q) = %+v, %v, want an error and no names", name, row[0], row[1], got, err)
		}
	}
	if _, err := NamesFor(strings.Repeat("p", 54), strings.Repeat("q", 54)); err != nil {
		t.Errorf("names of 63 characters = %v, want no error", err)
	}
}
