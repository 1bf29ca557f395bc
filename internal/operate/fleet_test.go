package operate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
)

// beat writes the heartbeat of a worker on VM vm-0 that follows a revision in a state.
func (b *rig) beat(t *testing.T, name string, steered bool, revision int, state lifecycle.State, asked string, jobs ...string) {
	t.Helper()
	err := b.stores.Workers.Write(t.Context(), presence.Presence{
		Worker: name, VM: "vm-0", State: state.String(), StartedAt: time.Now(), At: time.Now(),
		Steered: steered, Control: revision, Asked: asked, Jobs: jobs,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *rig) fleet(t *testing.T) *Fleet {
	t.Helper()
	if _, err := b.stores.Account.Container(b.names.Workers).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &Fleet{Control: b.stores.Control, Workers: b.stores.Workers, Name: "operator"}
}

// TestWaitForDrain: a drain has been followed once each worker that was asked has read this
// request and released its jobs, or is gone.
func TestWaitForDrain(t *testing.T) {
	for name, c := range map[string]struct {
		late func(t *testing.T, b *rig, revision int) // the worker's next heartbeats
		want bool
	}{
		"it hands over":            {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r, lifecycle.Shutdown, "drain") }, true},
		"it follows a later one":   {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r+1, lifecycle.Shutdown, "") }, true},
		"it is silent":             {func(*testing.T, *rig, int) {}, true},
		"it has stopped":           {func(t *testing.T, b *rig, _ int) { b.beat(t, "w", true, 0, lifecycle.Stopped, "") }, true},
		"it has not read it":       {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r-1, lifecycle.Shutdown, "") }, false},
		"it still has a job":       {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r, lifecycle.Shutdown, "drain", "job") }, false},
		"it is not drained":        {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r, lifecycle.Process, "") }, false},
		"it does not read any":     {func(t *testing.T, b *rig, r int) { b.beat(t, "w", false, r, lifecycle.Shutdown, "") }, false},
		"another one hands over":   {func(t *testing.T, b *rig, r int) { b.beat(t, "v", true, r, lifecycle.Shutdown, "drain") }, true},
		"it reads another request": {func(t *testing.T, b *rig, r int) { b.beat(t, "w", true, r, lifecycle.Process, "pause") }, false},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			f := b.fleet(t)
			b.beat(t, "w", true, 0, lifecycle.Process, "", "job")
			asked, err := f.Drain(t.Context(), []string{"w"})
			if err != nil || asked.Revision == 0 || !slices.Equal(asked.Workers, []string{"w"}) {
				t.Fatalf("%s: Drain = %+v, %v, want w asked", name, asked, err)
			}
			stop := make(chan struct{})
			go func() { // heartbeats until the wait ends
				defer close(stop)
				for range 10 {
					c.late(t, b, asked.Revision)
					time.Sleep(presence.Every)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			var first, last []string
			err = f.Wait(ctx, asked, func(left []string) {
				if first == nil {
					first = append([]string{}, left...)
				}
				last = left
			})
			if c.want && (err != nil || len(last) > 0) || !c.want && (!errors.Is(err, ErrNotFollowed) || !strings.Contains(err.Error(), ": w")) {
				t.Errorf("%s: Wait = %v with %q left, want followed: %t", name, err, last, c.want)
			}
			<-stop
		})
	}
}

// TestWaitForPause: a pause has been followed once each worker has read it.
func TestWaitForPause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		b.beat(t, "a", true, 0, lifecycle.Process, "")
		b.beat(t, "b", true, 0, lifecycle.Process, "")
		b.beat(t, "old", false, 0, lifecycle.Process, "")
		asked, err := f.Pause(t.Context(), nil, true)
		if err != nil || !slices.Equal(asked.Workers, []string{"a", "b", "old"}) || !slices.Equal(asked.Older, []string{"old"}) {
			t.Fatalf("Pause = %+v, %v, want all asked, and old to be older", asked, err)
		}
		b.beat(t, "a", true, asked.Revision, lifecycle.Process, presence.AskedPause)
		b.beat(t, "old", false, 0, lifecycle.Stopped, "")
		began := time.Now()
		go func() {
			time.Sleep(20 * time.Second)
			b.beat(t, "b", true, asked.Revision, lifecycle.Process, presence.AskedPause)
		}()
		var looks []string
		err = f.Wait(t.Context(), asked, func(left []string) { looks = append(looks, strings.Join(left, " ")) })
		if took := time.Since(began); err != nil || took < 20*time.Second || took > 20*time.Second+2*fleetPoll ||
			looks[0] != "b" || looks[len(looks)-1] != "" {
			t.Errorf("Wait = %v after %s, left at each look: %q; want b to be waited for", err, took, looks)
		}
	})
}
