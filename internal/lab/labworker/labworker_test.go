package labworker

import (
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/worker"
)

// TestSettings: a worker gets the settings of its command line, and keeps the rest.
func TestSettings(t *testing.T) {
	given := Settings{Visibility: 4 * time.Second}
	s, rest, err := parse([]string{"--concurrency=2", given.Argument(), "--scratch=x"})
	if err != nil || s != given || !slices.Equal(rest, []string{"--concurrency=2", "--scratch=x"}) {
		t.Fatalf("parse = %+v, %q, %v, want %+v and the other arguments", s, rest, err, given)
	}
	var c worker.Config
	c.Visibility, c.Policy.EvictionRate = time.Minute, 0.05
	s.apply(&c)
	if c.Visibility != given.Visibility || c.Policy.EvictionRate != 0.05 {
		t.Errorf("visibility = %s, rate = %g, want %s and the rate as before", c.Visibility, c.Policy.EvictionRate, given.Visibility)
	}
	if _, _, err := parse([]string{flag + "{"}); err == nil {
		t.Error("broken settings are accepted")
	}
}
