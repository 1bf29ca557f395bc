package delivery

import (
	"errors"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// A fleet is mixed while a worker may be alive that does not read all records, and while that
// is not known.
func TestMayBeMixed(t *testing.T) {
	worker := func(reads int, age time.Duration, state string) presence.Listed {
		return presence.Listed{Presence: presence.Presence{Software: presence.Software{Reads: reads}, State: state}, Age: age}
	}
	current := worker(checkpoint.Version, 0, "process")
	for name, row := range map[string]struct {
		workers []presence.Listed
		err     error
		want    bool
	}{
		"no worker":           {nil, nil, false},
		"current workers":     {[]presence.Listed{current, current}, nil, false},
		"a newer worker":      {[]presence.Listed{current, worker(checkpoint.Version+1, 0, "process")}, nil, false},
		"an older worker":     {[]presence.Listed{current, worker(0, 0, "process")}, nil, true},
		"one that is silent":  {[]presence.Listed{current, worker(0, hasKindFor, "process")}, nil, true},
		"one that is dead":    {[]presence.Listed{current, worker(0, hasKindFor+time.Second, "process")}, nil, false},
		"one that stopped":    {[]presence.Listed{current, worker(0, 0, "stopped")}, nil, false},
		"one in a drain":      {[]presence.Listed{current, worker(2, 0, "preempt")}, nil, true},
		"heartbeats unlisted": {nil, errors.New("refused"), true},
	} {
		f := NewFleet(nil)
		f.sampled = Sample{at: time.Now(), Workers: row.workers, err: row.err}
		if got := f.MayBeMixed(t.Context(), checkpoint.Version); got != row.want {
			t.Errorf("%s: mixed = %t, want %t", name, got, row.want)
		}
	}
}
