package realtime

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/replay"
)

// TestValidate: a scenario that does not fit a machine is refused, and the error says what to change.
func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*replay.Scenario)
		want   string // empty: it is accepted
	}{
		"fits":      {func(*replay.Scenario) {}, ""},
		"recorded":  {func(s *replay.Scenario) { s.Fleet.Lives, s.Fleet.Shorten = "gcp-2019", 60 }, ""},
		"a day":     {func(s *replay.Scenario) { s.For.Duration = 24 * time.Hour }, "--for up to 2h"},
		"VMs":       {func(s *replay.Scenario) { s.Fleet.VMs = 33 }, "--vms up to 32"},
		"slots":     {func(s *replay.Scenario) { s.Fleet.VMs, s.Fleet.Slots = 10, 7 }, "up to 64 jobs"},
		"starts":    {func(s *replay.Scenario) { s.Fleet.VMs, s.Fleet.Rate = 32, 400 }, "fewer --evictions"},
		"shortened": {func(s *replay.Scenario) { s.Fleet.VMs, s.Fleet.Lives, s.Fleet.Shorten = 32, "gcp-2019", 10_000 }, "--shorten-lives"},
		"jobs":      {func(s *replay.Scenario) { s.Work.Jobs = 20_001 }, "fewer --jobs"},
		"hold":      {func(s *replay.Scenario) { s.Policy.Hold = true }, "virtual time"},
		"moves":     {func(s *replay.Scenario) { s.Fleet.Fixed, s.Policy.MoveAfter = 1, 1 }, "virtual time"},
		"hidden":    {func(s *replay.Scenario) { s.Policy.Visibility.Duration = 10 * time.Minute }, "up to 5m"},
		"wrong":     {func(s *replay.Scenario) { s.Work.Load = 2 }, "load"},
	} {
		t.Run(name, func(t *testing.T) {
			s := replay.Default()
			s.For.Duration = 10 * time.Minute
			c.change(&s)
			_, err := Config{Scenario: s}.plan()
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("plan() = %v, want %q", err, c.want)
			}
		})
	}
}
