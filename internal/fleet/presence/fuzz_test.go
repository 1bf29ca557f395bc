package presence

import (
	"strings"
	"testing"
	"time"
)

// FuzzPresence reads any heartbeat that another worker, or somebody with its rights, may
// have written: it never fails, and a worker counts as ready for an event only if the
// event was listed with that id.
func FuzzPresence(f *testing.F) {
	for _, seed := range []string{
		"", "e1@2026-03-09T13:15:00Z", "e1@", "@2026-03-09T13:15:00Z", "e1", "e1@,e2@", "%zz@", "a%40b@2026-03-09T13:15:00Z", ",,,",
		"e1@tomorrow", "E1@9999-12-31T23:59:59Z",
		strings.Repeat("e@,", 2000), "e1@2026-03-09T13:15:00Z@x",
	} {
		f.Add(seed, "3", "e1")
	}
	f.Fuzz(func(t *testing.T, ready, jobs, event string) {
		if len(ready)+len(jobs) > 8<<10 {
			return // no metadata has it
		}
		p := parse("vm_0-11112222-0", map[string]*string{"Ready": &ready, "jobs": &jobs, "state": &jobs, "at": &ready})
		noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
		for _, r := range p.Ready {
			if r.ID == "" {
				t.Fatalf("an event without an id in %q", ready)
			}
			if r.Covers(event, noon) && !(strings.EqualFold(r.ID, event) && !r.NotBefore.Before(noon)) {
				t.Fatalf("%+v covers %q", r, event)
			}
		}
		if again := parseReady(formatReady(p.Ready)); len(p.Ready) <= maxReady && len(again) != len(p.Ready) {
			t.Fatalf("%d events were written and read as %d", len(p.Ready), len(again))
		}
	})
}
