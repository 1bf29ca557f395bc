package preempt

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzDocument looks for answers that crash the parser, that pass without being
// a document, or from which a decision outside its bounds follows. Inputs worth
// keeping are in testdata/fuzz/FuzzDocument.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"DocumentIncarnation":1,"Events":[]}`))
	f.Add([]byte(`{"error":"Bad request"}`))
	f.Add([]byte(`{"DocumentIncarnation":3,"Events":[{"EventId":"1","EventStatus":"Scheduled","EventType":"Preempt",` +
		`"Resources":["a"],"NotBefore":"Mon, 09 Mar 2026 12:00:07 GMT","EventSource":"Platform","DurationInSeconds":-1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := parseDocument(body)
		if err != nil {
			return
		}
		if !bytes.Contains(bytes.ToLower(body), []byte("event")) && !bytes.Contains(body, []byte(`\u`)) && isASCII(body) {
			t.Fatalf("%q has no events list but was read as %+v", body, doc)
		}
		checkDocument(t, doc)
		again, err := parseDocument(body)
		if diff := cmp.Diff(doc, again); err != nil || diff != "" {
			t.Fatalf("a second reading of %q differs: %v\n%s", body, err, diff)
		}
	})
}

// isASCII matters because encoding/json folds a few other letters to ASCII ones
// when it compares names.
func isASCII(body []byte) bool {
	return bytes.IndexFunc(body, func(r rune) bool { return r > 0x7e }) < 0
}

func checkDocument(t *testing.T, doc Document) {
	t.Helper()
	for _, e := range doc.Events {
		if e.Duration < 0 && e.Duration != UnknownDuration {
			t.Errorf("duration = %d, want UnknownDuration or more", e.Duration)
		}
		for _, resource := range e.Resources {
			if resource == "" || resource != strings.TrimSpace(resource) {
				t.Errorf("resource %q, want one without surrounding space", resource)
			}
			checkDecision(t, e, Decide(doc, Identity{Name: resource}, noon))
		}
	}
	announced := slices.ContainsFunc(doc.Events, func(e Event) bool { return e.Type == TypePreempt })
	d := Decide(doc, Identity{}, noon)
	if want := map[bool]Action{false: CarryOn, true: CheckpointNow}[announced]; d.Action != want || len(d.Acknowledgements()) != 0 {
		t.Errorf("decision without a name = %+v, want to %s and to acknowledge nothing", d, want)
	}
}

// checkDecision looks at a decision for a VM that e names.
func checkDecision(t *testing.T, e Event, d Decision) {
	t.Helper()
	if e.Type == TypePreempt && d.Action != Drain {
		t.Errorf("decision on %+v = %s, want drain", e, d.Action)
	}
	least, most := time.Duration(0), time.Duration(0)
	switch d.Action {
	case Drain:
		least, most = StartedBudget, DrainBudget
	case DrainBy:
		least, most = DrainMargin+1, 1<<63-1
	case CheckpointNow, CarryOn: // no budget
	}
	if d.Budget < least || d.Budget > most {
		t.Errorf("budget for %+v = %s, want %s to %s", d.Event, d.Budget, least, most)
	}
	for _, v := range d.Verdicts {
		if v.Acknowledge && (v.Event.Type == TypePreempt || v.Event.Status == StatusStarted) {
			t.Errorf("verdict %+v acknowledges what cannot be", v)
		}
	}
	if d.Reason == "" || len(d.Verdicts) == 0 {
		t.Errorf("decision on %+v = %+v, want a reason and a verdict", e, d)
	}
}
