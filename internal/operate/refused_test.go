package operate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestEveryRefusalIsReported refuses each single storage call of an operator's command. The
// command reports it, by its error or for one job, unless the call is one of those in quiet.
func TestEveryRefusalIsReported(t *testing.T) {
	for _, row := range []struct {
		name  string
		act   func(t *testing.T, b *rig) error
		quiet []string
	}{
		{"clean", func(t *testing.T, b *rig) error { return clean(t, b, func(*Cleaner) {}) }, nil},
		{"dry run of clean", func(t *testing.T, b *rig) error { return clean(t, b, func(c *Cleaner) { c.DryRun = true }) }, nil},
		{"cancel", func(t *testing.T, b *rig) error {
			outcomes, err := b.cancel(t.Context(), t, "runs", "waits", "b")
			for _, o := range outcomes {
				err = cmp.Or(err, o.Err)
			}
			return err
		}, nil},
		{"orphans", func(t *testing.T, b *rig) error {
			s, err := b.Orphans(t.Context(), checkpoint.StaleAfter)
			if err != nil {
				return err
			}
			for _, o := range s.Orphans {
				if _, _, err := b.Requeue(t.Context(), o, b.Queue); err != nil {
					return err
				}
			}
			return nil
		}, nil},
		{"peek", func(t *testing.T, b *rig) error {
			items, _, err := b.Peek(t.Context())
			for _, it := range items {
				_, _, looked := b.Lookup(t.Context(), it)
				err = cmp.Or(err, looked)
			}
			return err
		}, nil},
		{"list", func(t *testing.T, b *rig) error {
			return b.All(t.Context(), func(it Item) error { return it.Fault })
		}, []string{"UpdateMessage test-jobs-poison"}}, // messages stay hidden for two minutes
		{"replay", func(t *testing.T, b *rig) error { return told(b, b.Replay(t.Context(), all, false, b.report)) }, nil},
		{"replay from scratch", func(t *testing.T, b *rig) error { return told(b, b.Replay(t.Context(), all, true, b.report)) }, nil},
		{"purge", func(t *testing.T, b *rig) error { return told(b, b.Purge(t.Context(), all, b.report)) }, nil},
		{"resize", func(t *testing.T, b *rig) error {
			if err := Resize(t.Context(), b.connect(t, b.link).Jobs, 3, time.Minute, func(int) {}); err != nil {
				return err
			}
			return Resize(t.Context(), b.connect(t, b.link).Jobs, 1, time.Hour, func(int) {})
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			for at := 1; ; at++ {
				reached := false
				inBubble(t, func(t *testing.T, b *rig) {
					b.varied(t)
					var mu sync.Mutex // guards calls and what
					calls, what := 0, ""
					b.server.OnCall(func(c storage.Call) storage.Fault {
						mu.Lock()
						defer mu.Unlock()
						if calls++; calls != at {
							return storage.Fault{}
						}
						what = fmt.Sprintf("%s %s%s", c.Operation, c.Container, c.Queue)
						return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
					})
					err := row.act(t, b)
					mu.Lock()
					defer mu.Unlock()
					reached = calls >= at
					switch {
					case at == 1 && !reached:
						t.Error("there is no call")
					case !reached && err != nil:
						t.Errorf("without a refusal: %v", err)
					case reached && err == nil && !slices.Contains(row.quiet, what):
						t.Errorf("call %d, %s: it was refused, and nothing is reported", at, what)
					}
				})
				if !reached {
					break
				}
			}
		})
	}
}

// varied leaves jobs of many kinds.
func (b *rig) varied(t *testing.T) {
	t.Helper()
	b.old(t)
	b.put(t, given{id: "apart", state: "half", payload: wide, offload: true, onDemand: true, outputs: 2})
	b.put(t, given{id: "gone", payload: small, gone: true})
	b.put(t, given{id: "runs-2", status: checkpoint.Running})
}

func clean(t *testing.T, b *rig, change func(*Cleaner)) error {
	t.Helper()
	c := b.cleaner(t)
	change(c)
	var failed error
	_, err := c.Clean(t.Context(), nil, func(_ string, err error) { failed = cmp.Or(failed, err) })
	return cmp.Or(err, failed)
}

// told returns the first error that a replay or a purge reported.
func told(b *rig, err error) error {
	for _, o := range b.told {
		if o.Action == Failed {
			err = cmp.Or(err, o.Err, errors.New(o.Detail))
		}
	}
	return err
}
