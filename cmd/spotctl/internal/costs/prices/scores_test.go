package prices

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
)

// asker gathers several times with one cache.
type asker struct {
	*testing.T
	server *pricing.Server
	path   string
}

func newAsker(t *testing.T) *asker {
	return &asker{t, market(), filepath.Join(t.TempDir(), "spotctl", "scores.json")}
}

// at gathers at a time after today.
func (a *asker) at(after time.Duration, change func(*Query)) Report {
	a.Helper()
	q := Query{
		Sizes: []string{"Standard_D2as_v5", "Standard_D4s_v5"}, Regions: []string{"westeurope", "northeurope"}, Subscription: subscription,
	}
	if change != nil {
		change(&q)
	}
	q, err := q.Normalize()
	if err != nil {
		a.Fatal(err)
	}
	client, err := New(Options{Credential: signedIn{}, Transport: inProcess{a.server}, ScoreCache: a.path})
	if err != nil {
		a.Fatal(err)
	}
	report, err := Gather(a.Context(), client, q, today.Add(after))
	if err != nil {
		a.Fatal(err)
	}
	return report
}

// want fails unless the scores are that old, after so many requests for scores.
func (a *asker) want(r Report, age time.Duration, requests int) {
	a.Helper()
	if got := a.server.Calls("placement"); r.ScoreAge != age || got != requests {
		a.Errorf("scores are %s old after %d requests, want %s after %d", r.ScoreAge, got, age, requests)
	}
	if o := offer(a.T, r, "Standard_D2as_v5", "northeurope"); !slices.Equal(o.Placement, []Placement{{Score: "Low"}}) {
		a.Errorf("placement is %v, want Low", o.Placement)
	}
}

// TestScoresAreCached: for 20 minutes scores come from the file, whatever else is asked for
// again.
func TestScoresAreCached(t *testing.T) {
	a := newAsker(t)
	a.want(a.at(0, nil), 0, 1)
	a.want(a.at(7*time.Minute, nil), 7*time.Minute, 1)
	if got := a.server.Calls("usages"); got != 4 {
		t.Errorf("%d requests for quotas, want 4: only scores are cached", got)
	}
	// A part of the sizes and regions, in another case, needs no request either.
	a.want(a.at(19*time.Minute+59*time.Second, func(q *Query) {
		q.Sizes, q.Regions = []string{"d2AS_v5"}, []string{"northeurope"}
	}), 19*time.Minute+59*time.Second, 1)
	a.want(a.at(20*time.Minute, nil), 0, 2)
	a.want(a.at(21*time.Minute, nil), time.Minute, 2)
	a.want(a.at(5*time.Minute, nil), 0, 3) // the clock was set back
}

// TestScoresOfAnotherQuestion: scores are for one subscription, number of VMs, size, region
// and with or without zones.
func TestScoresOfAnotherQuestion(t *testing.T) {
	for name, change := range map[string]func(*Query){
		"subscription": func(q *Query) { q.Subscription = "99999999-2222-3333-4444-555555555555" },
		"count":        func(q *Query) { q.Count = 2 },
		"size":         func(q *Query) { q.Sizes = append(q.Sizes, "Standard_B2s") },
		"region":       func(q *Query) { q.Regions = append(q.Regions, "uksouth") },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t)
			a.at(0, nil)
			a.want(a.at(time.Minute, change), 0, 2)
		})
	}
	a := newAsker(t)
	a.at(0, nil)
	r := a.at(time.Minute, func(q *Query) { q.Zones = true })
	if o := offer(t, r, "Standard_D2as_v5", "northeurope"); len(o.Placement) != 3 || a.server.Calls("placement") != 2 {
		t.Errorf("placement is %v, want a score for each of three zones", o.Placement)
	}
	// The first answer is still in the file.
	a.want(a.at(2*time.Minute, nil), 2*time.Minute, 2)
}

// TestScoreCacheFails: a cache that cannot be used costs requests and nothing else.
func TestScoreCacheFails(t *testing.T) {
	a := newAsker(t)
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		t.Fatal(err)
	}
	for n, text := range []string{"", "null", "[]", `{"x":{"asked":"soon"}}`, "{"} {
		if err := os.WriteFile(a.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a.want(a.at(0, nil), 0, n+1)
	}
	a.path = filepath.Join(a.path, "below a file")
	a.want(a.at(0, nil), 0, 6)
	a.path = ""
	a.want(a.at(0, nil), 0, 7)
	left, err := filepath.Glob(filepath.Join(a.TempDir(), "..", "*", "spotctl", ".scores-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}
