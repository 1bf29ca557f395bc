package presence

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/formats"
)

func TestFormatIsDocumented(t *testing.T) {
	inCode := slices.Sorted(maps.Keys(full().metadata()))
	if diff := cmp.Diff(formats.Documented(t, "Keys of a presence"), inCode); diff != "" {
		t.Errorf("keys of a presence (-documented +in code)\n%s", diff)
	}
}

func TestRunningIsDocumented(t *testing.T) {
	text, err := json.Marshal(runningBody{
		ID: "a", Generation: 1, RunTime: 1, Ran: 1, From: 1, Fraction: 1, Text: "a", HandOver: 1, Log: []byte("a"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(formats.Documented(t, "Fields of a running job"), slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields of a running job (-documented +in code)\n%s", diff)
	}
}
