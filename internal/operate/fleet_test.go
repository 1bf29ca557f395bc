package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
)

// beat writes the heartbeat of a worker on VM vm-0 that follows a revision in a state.
func (b *rig) beat(t *testing.T, name string, steered bool, revision int, state lifecycle.State, asked string, jobs ...string) {
	t.Helper()
	err := b.stores.Workers.Write(t.Context(), presence.Presence{
		Worker: name, Machine: presence.Machine{VM: "vm-0"}, State: state.String(), StartedAt: time.Now(), At: time.Now(),
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
		if err != nil || !slices.Equal(asked.Workers, []string{"a", "b", "old"}) || !slices.Equal(asked.Unsteered, []string{"old"}) {
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

// TestRequestsEnd: the end of a request without names ends all of them, and the errors name
// the worker, the VM or the kind that was not asked.
func TestRequestsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		b.beat(t, "w", true, 0, lifecycle.Process, "")
		ask := func(name string, do func() (Asked, error)) {
			t.Helper()
			if _, err := do(); err != nil {
				t.Fatalf("%s = %v", name, err)
			}
		}
		ctx := t.Context()
		ask("Pause", func() (Asked, error) { return f.Pause(ctx, nil, true) })
		ask("Pause of a kind", func() (Asked, error) { return f.Pause(ctx, []string{"k", "l"}, true) })
		ask("Drain of one", func() (Asked, error) { return f.Drain(ctx, []string{"w"}) })
		ask("Drain", func() (Asked, error) { return f.Drain(ctx, nil) })
		ask("Quarantine", func() (Asked, error) { return f.Quarantine(ctx, []string{"vm-0", "vm-1"}) })
		if _, err := f.Resume(ctx, []string{"w"}); err == nil || !strings.Contains(err.Error(), "resume all of them") {
			t.Errorf("Resume of one while all are drained = %v, want an error", err)
		}
		ask("Unpause of a kind", func() (Asked, error) { return f.Pause(ctx, []string{"l"}, false) })
		ask("Resume of a VM", func() (Asked, error) { return f.Resume(ctx, []string{"VM-1"}) })
		found, _, err := b.stores.Control.Read(ctx, "")
		d := found.Document
		if err != nil || d.Pause == nil || len(d.PausedKinds) != 1 || len(d.Drains) != 1 || d.DrainAll == nil || len(d.Quarantine) != 1 {
			t.Fatalf("document = %+v, %v", d, err)
		}
		ask("Unpause", func() (Asked, error) { return f.Pause(ctx, nil, false) })
		ask("Resume", func() (Asked, error) { return f.Resume(ctx, nil) })
		ask("Resume of the rest", func() (Asked, error) { return f.Resume(ctx, []string{"vm-0"}) })
		if found, _, err = b.stores.Control.Read(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if d := found.Document; d.Pause != nil || len(d.PausedKinds) != 0 || len(d.Drains) != 0 || d.DrainAll != nil || len(d.Quarantine) != 0 {
			t.Errorf("document = %+v, want no request", d)
		}
		for want, do := range map[string]func() (Asked, error){
			`kind "k" is not paused`:          func() (Asked, error) { return f.Pause(ctx, []string{"k"}, false) },
			`"vm-0" is not drained`:           func() (Asked, error) { return f.Resume(ctx, []string{"vm-0"}) },
			`"w" is not drained`:              func() (Asked, error) { return f.Resume(ctx, []string{"w"}) },
			`there is no worker or VM "nope"`: func() (Asked, error) { return f.Drain(ctx, []string{"w", "nope"}) },
		} {
			if _, err := do(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want %q", err, want)
			}
		}
	})
}

// TestLimitsOfRequests: the control document has no more names than it may have, and a
// request that would exceed them changes nothing.
func TestLimitsOfRequests(t *testing.T) {
	many := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprint("name-", i))
		}
		return names
	}
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		for name, c := range map[string]struct {
			most int
			ask  func(names []string) (Asked, error)
		}{
			"Quarantine": {control.MaxQuarantines, func(names []string) (Asked, error) { return f.Quarantine(t.Context(), names) }},
			"Pause":      {control.MaxPausedKinds, func(names []string) (Asked, error) { return f.Pause(t.Context(), names, true) }},
		} {
			if _, err := c.ask(many(c.most + 1)); err == nil {
				t.Errorf("%s of %d = nil, want an error", name, c.most+1)
			}
			if _, err := c.ask(many(c.most)); err != nil {
				t.Errorf("%s of %d = %v", name, c.most, err)
			}
		}
	})
}

// TestWorkersCannotBeListed: it is an error, and the request stands.
func TestWorkersCannotBeListed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		b.refuse(b.names.Workers, storage.OpListBlobs)
		asked, err := f.Pause(t.Context(), nil, true)
		if err == nil || !strings.Contains(err.Error(), "the workers were asked, but not listed") || asked.Revision == 0 {
			t.Errorf("Pause = %+v, %v, want an error and the revision", asked, err)
		}
		if err := f.Wait(t.Context(), asked, func([]string) {}); err == nil || errors.Is(err, ErrNotFollowed) {
			t.Errorf("Wait = %v, want the error of the listing", err)
		}
	})
}

// TestRequestsOnTheirOwn: the end of a request that stands alone is a change.
func TestRequestsOnTheirOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		ctx := t.Context()
		for name, pair := range map[string][2]func() (Asked, error){
			"pause": {func() (Asked, error) { return f.Pause(ctx, nil, true) }, func() (Asked, error) { return f.Pause(ctx, nil, false) }},
			"drain": {func() (Asked, error) { return f.Drain(ctx, nil) }, func() (Asked, error) { return f.Resume(ctx, nil) }},
		} {
			began, err := pair[0]()
			ended, endErr := pair[1]()
			if got := document(t, f); err != nil || endErr != nil || ended.Revision != began.Revision+1 || got != "" {
				t.Errorf("%s: revisions %d, %d, %v, %v, document %q; want it ended", name, began.Revision, ended.Revision, err, endErr, got)
			}
		}
	})
}

// TestAliveWorkers: a heartbeat of exactly the age of silence still counts.
func TestAliveWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		b.beat(t, "w", true, 0, lifecycle.Process, "")
		time.Sleep(presence.SilentAfter)
		if asked, err := f.Pause(t.Context(), nil, true); err != nil || len(asked.Workers) != 1 {
			t.Errorf("Pause asks %q, %v, want w", asked.Workers, err)
		}
		time.Sleep(time.Second)
		if asked, err := f.Pause(t.Context(), nil, true); err != nil || len(asked.Workers) != 0 {
			t.Errorf("Pause a second later asks %q, %v, want nobody", asked.Workers, err)
		}
	})
}

// TestDamagedControlDocument: a request fails, and with Reset it replaces the document and keeps
// a copy.
func TestDamagedControlDocument(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		blob := b.stores.Account.Container(b.names.Control).NewBlockBlobClient("control")
		if _, err := blob.UploadBuffer(t.Context(), []byte("[]"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Pause(t.Context(), nil, true); !errors.As(err, new(*control.DamagedError)) {
			t.Errorf("Pause = %v, want a DamagedError", err)
		}
		f.Reset = true
		if asked, err := f.Pause(t.Context(), nil, true); err != nil || asked.Damaged == "" || document(t, f) == "" {
			t.Errorf("Pause with Reset = %+v, %v, want it paused and the name of the copy", asked, err)
		}
	})
}

// TestKnownOnlyEdges: a VM is known by the name in a heartbeat, a pause of any kind can be ended,
// and without heartbeats nothing is known.
func TestKnownOnlyEdges(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.fleet(t)
		b.beat(t, "w", true, 0, lifecycle.Process, "")
		if _, err := f.Pause(t.Context(), []string{"rendre"}, true); err != nil {
			t.Fatal(err)
		}
		f.KnownOnly = true
		if err := b.stores.Workers.Write(t.Context(), presence.Presence{Worker: "w", Machine: presence.Machine{VM: "vm-0"}, Steered: true,
			State: lifecycle.Process.String(), Kinds: []string{"render"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Pause(t.Context(), []string{"rendre"}, false); err != nil {
			t.Errorf("the end of a pause of a kind that no worker has = %v", err)
		}
		if _, err := f.Quarantine(t.Context(), []string{"VM-0"}); err != nil {
			t.Errorf("Quarantine of a VM that only a heartbeat names = %v", err)
		}
		if _, err := f.Quarantine(t.Context(), []string{"vm-00"}); err == nil || !strings.Contains(err.Error(), `did you mean "vm-0"?`) {
			t.Errorf("Quarantine of a misspelt VM = %v, want the VM's name", err)
		}
		b.refuse(b.names.Workers, storage.OpListBlobs)
		for name, ask := range map[string]func() (Asked, error){
			"Pause":      func() (Asked, error) { return f.Pause(t.Context(), []string{"render"}, true) },
			"Quarantine": func() (Asked, error) { return f.Quarantine(t.Context(), []string{"vm-0"}) },
			"Drain":      func() (Asked, error) { return f.Drain(t.Context(), []string{"vm-0"}) },
		} {
			if _, err := ask(); err == nil || errors.Is(err, ErrUnknownName) || strings.Contains(err.Error(), "no worker") ||
				strings.Contains(err.Error(), "were asked") {
				t.Errorf("%s without heartbeats = %v, want the error of the list", name, err)
			}
		}
	})
}
