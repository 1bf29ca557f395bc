package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// twoVMs returns the operator's access to a fleet of two VMs: a-1 and a-2 run on VM a, b-1 on VM b
// with a job, old does not read the control document, and gone has stopped.
func (b *rig) twoVMs(t *testing.T) *Fleet {
	t.Helper()
	container := b.stores.Account.Container(b.names.Workers)
	if _, err := container.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f := &Fleet{Control: control.NewStore(b.stores.Account.Container(b.names.Control)), Workers: presence.NewStore(container),
		Name: "spotctl@test", Reason: "upgrade"}
	for _, p := range []presence.Presence{
		{Worker: "a-1", Machine: presence.Machine{VM: "A"}, Steered: true, State: "process"},
		{Worker: "a-2", Machine: presence.Machine{VM: "A"}, Steered: true, State: "process"},
		{Worker: "b-1", Machine: presence.Machine{VM: "b"}, Steered: true, State: "process", Jobs: []string{"j"}},
		{Worker: "old-1", State: "process"}, {Worker: "gone-1", Steered: true, State: "stopped"},
	} {
		b.heartbeat(t, f, p)
	}
	return f
}

func (b *rig) heartbeat(t *testing.T, f *Fleet, p presence.Presence) {
	t.Helper()
	if err := f.Workers.Write(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// document returns the control document in short.
func document(t *testing.T, f *Fleet) string {
	t.Helper()
	found, _, err := f.Control.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	d := found.Document
	var parts []string
	add := func(what string, m control.Mark) {
		if m.By != f.Name || m.Reason != f.Reason || time.Since(m.At).Abs() > time.Minute {
			what += fmt.Sprintf(" by %s for %s at %s", m.By, m.Reason, m.At)
		}
		parts = append(parts, what)
	}
	if d.Pause != nil {
		add("pause", *d.Pause)
	}
	if d.DrainAll != nil {
		add("drain all", *d.DrainAll)
	}
	for what, marks := range map[string]map[string]control.Mark{"pause": d.PausedKinds, "drain": d.Drains, "quarantine": d.Quarantine} {
		for name, m := range marks {
			add(what+" "+name, m)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// TestFleetRequests: each request changes the control document, names the live workers that it
// concerns, and raises the revision if it changes something.
func TestFleetRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.twoVMs(t)
		ctx := t.Context()
		all := []string{"a-1", "a-2", "b-1", "old-1"}
		for _, row := range []struct {
			name     string
			ask      func() (Asked, error)
			workers  []string
			document string
			revision int
			err      string
		}{
			{"pause", func() (Asked, error) { return f.Pause(ctx, nil, true) }, all, "pause", 1, ""},
			{"pause again", func() (Asked, error) { return f.Pause(ctx, nil, true) }, all, "pause", 1, ""},
			{"pause kinds", func() (Asked, error) { return f.Pause(ctx, []string{"k", "l"}, true) }, all, "pause, pause k, pause l", 2, ""},
			{"again", func() (Asked, error) { return f.Pause(ctx, []string{"l"}, true) }, all, "pause, pause k, pause l", 2, ""},
			{"a wrong kind", func() (Asked, error) { return f.Pause(ctx, []string{"a b"}, true) }, nil, "pause, pause k, pause l", 2, "a b"},
			{"end one", func() (Asked, error) { return f.Pause(ctx, []string{"l"}, false) }, all, "pause, pause k", 3, ""},
			{"it is ended", func() (Asked, error) { return f.Pause(ctx, []string{"l"}, false) }, nil, "pause, pause k", 3, `"l" is not paused`},
			{"end all", func() (Asked, error) { return f.Pause(ctx, nil, false) }, all, "", 4, ""},
			{"nothing to end", func() (Asked, error) { return f.Pause(ctx, nil, false) }, all, "", 4, ""},
			{"a kind alone", func() (Asked, error) { return f.Pause(ctx, []string{"k"}, true) }, all, "pause k", 5, ""},
			{"end it with all", func() (Asked, error) { return f.Pause(ctx, nil, false) }, all, "", 6, ""},
			{"drain a VM", func() (Asked, error) { return f.Drain(ctx, []string{"a"}, 0) }, all[:2], "drain a-1, drain a-2", 7, ""},
			{"drain it again", func() (Asked, error) { return f.Drain(ctx, []string{"a-1"}, 0) }, all[:1], "drain a-1, drain a-2", 7, ""},
			{"drain nobody", func() (Asked, error) { return f.Drain(ctx, []string{"a", "c"}, 0) }, nil, "drain a-1, drain a-2", 7, `"c"`},
			{"drain no VM", func() (Asked, error) { return f.Drain(ctx, []string{""}, 0) }, nil, "drain a-1, drain a-2", 7, `""`},
			{"resume one", func() (Asked, error) { return f.Resume(ctx, []string{"a-2"}) }, all[1:2], "drain a-1", 8, ""},
			{"resume it again", func() (Asked, error) { return f.Resume(ctx, []string{"a-2"}) }, nil, "drain a-1", 8, `"a-2" is not drained`},
			{"drain one at its end", func() (Asked, error) { return f.Drain(ctx, []string{"b-1"}, time.Hour) }, all[2:3],
				"drain a-1, drain b-1", 9, ""},
			{"and another way", func() (Asked, error) { return f.Drain(ctx, []string{"b-1"}, time.Minute) }, all[2:3],
				"drain a-1, drain b-1", 9, ""},
			{"and at once", func() (Asked, error) { return f.Drain(ctx, []string{"b-1"}, 0) }, all[2:3], "drain a-1, drain b-1", 10, ""},
			{"resume that", func() (Asked, error) { return f.Resume(ctx, []string{"b-1"}) }, all[2:3], "drain a-1", 11, ""},
			{"drain all", func() (Asked, error) { return f.Drain(ctx, nil, 0) }, all, "drain a-1, drain all", 12, ""},
			{"drain all again", func() (Asked, error) { return f.Drain(ctx, nil, 0) }, all, "drain a-1, drain all", 12, ""},
			{"resume one of all", func() (Asked, error) { return f.Resume(ctx, []string{"a-1"}) }, nil, "drain a-1, drain all", 12, "all of them"},
			{"resume all", func() (Asked, error) { return f.Resume(ctx, nil) }, all, "", 13, ""},
			{"nobody to resume", func() (Asked, error) { return f.Resume(ctx, nil) }, all, "", 13, ""},
			{"drain one", func() (Asked, error) { return f.Drain(ctx, []string{"b-1"}, 0) }, all[2:3], "drain b-1", 14, ""},
			{"resume all of one", func() (Asked, error) { return f.Resume(ctx, nil) }, all, "", 15, ""},
			{"quarantine", func() (Asked, error) { return f.Quarantine(ctx, []string{"a", "new"}) }, all[:2],
				"quarantine a, quarantine new", 16, ""},
			{"again", func() (Asked, error) { return f.Quarantine(ctx, []string{"a"}) }, all[:2], "quarantine a, quarantine new", 16, ""},
			{"resume a worker there", func() (Asked, error) { return f.Resume(ctx, []string{"a-1"}) }, nil, "quarantine a, quarantine new", 16,
				"resume the VM"},
			{"resume a VM", func() (Asked, error) { return f.Resume(ctx, []string{"NEW"}) }, nil, "quarantine a", 17, ""},
			{"resume it again", func() (Asked, error) { return f.Resume(ctx, []string{"new"}) }, nil, "quarantine a", 17, `"new" is not drained`},
		} {
			asked, err := row.ask()
			if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
				t.Errorf("%s: %v, want an error with %q", row.name, err, row.err)
			}
			if diff := cmp.Diff(row.workers, asked.Workers); diff != "" {
				t.Errorf("%s: workers (-want +got):\n%s", row.name, diff)
			}
			if got := document(t, f); got != row.document || err == nil && asked.Revision != row.revision {
				t.Errorf("%s: %q of revision %d, want %q of %d", row.name, got, asked.Revision, row.document, row.revision)
			}
			if err == nil && slices.Contains(asked.Workers, "old-1") != slices.Contains(asked.Unsteered, "old-1") || len(asked.Unsteered) > 1 {
				t.Errorf("%s: older workers %q among %q", row.name, asked.Unsteered, asked.Workers)
			}
		}
	})
}

// TestFleetLimits: lists in the control document have limits, which a request may reach.
func TestFleetLimits(t *testing.T) {
	names := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("n%d", i)
		}
		return all
	}
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.twoVMs(t)
		if _, err := f.Pause(t.Context(), names(control.MaxPausedKinds+1), true); err == nil {
			t.Error("one paused kind too many, want an error")
		}
		if _, err := f.Pause(t.Context(), names(control.MaxPausedKinds), true); err != nil {
			t.Errorf("as many paused kinds as may be: %v", err)
		}
		if _, err := f.Quarantine(t.Context(), names(control.MaxQuarantines+1)); err == nil {
			t.Error("one VM too many, want an error")
		}
		if _, err := f.Quarantine(t.Context(), names(control.MaxQuarantines)); err != nil {
			t.Errorf("as many VMs as may be: %v", err)
		}
		for _, name := range names(control.MaxDrains + 1) {
			b.heartbeat(t, f, presence.Presence{Worker: "w-" + name, Machine: presence.Machine{VM: name}, State: "process"})
		}
		if _, err := f.Drain(t.Context(), names(control.MaxDrains+1), 0); err == nil {
			t.Error("one drain too many, want an error")
		}
		if _, err := f.Drain(t.Context(), names(control.MaxDrains), 0); err != nil {
			t.Errorf("as many drains as may be: %v", err)
		}
	})
}

// TestFleetWait: a wait ends when each worker has read the request and done it, or is gone.
func TestFleetWait(t *testing.T) {
	drained := func(revision int) presence.Presence {
		return presence.Presence{Steered: true, Control: revision, State: "shutdown", Asked: presence.AskedDrain}
	}
	for _, row := range []struct {
		name  string
		ask   func(f *Fleet) (Asked, error)
		beats []presence.Presence
		left  []int // workers, at each look
	}{
		{"a drain", func(f *Fleet) (Asked, error) { return f.Drain(context.Background(), []string{"b"}, 0) }, []presence.Presence{
			{Steered: true, Control: 2, State: "process", Jobs: []string{"j"}}, // it has read the request
			{Steered: true, Control: 2, State: "shutdown", Jobs: []string{"j"}},
			{Steered: true, Control: 1, State: "shutdown"},
			{Control: 2, State: "shutdown"},
			drained(2),
		}, []int{1, 1, 1, 1, 1, 0}},
		{"a worker that ends", func(f *Fleet) (Asked, error) { return f.Drain(context.Background(), []string{"b"}, 0) },
			[]presence.Presence{{Steered: true, State: "stopped"}}, []int{1, 0}},
		{"a resume", func(f *Fleet) (Asked, error) {
			if _, err := f.Drain(context.Background(), []string{"b"}, 0); err != nil {
				return Asked{}, err
			}
			return f.Resume(context.Background(), []string{"b-1"})
		}, []presence.Presence{drained(3), {Steered: true, Control: 3, State: "process"}}, []int{1, 1, 0}},
		{"the end of a quarantine", func(f *Fleet) (Asked, error) {
			if _, err := f.Quarantine(context.Background(), []string{"b"}); err != nil {
				return Asked{}, err
			}
			return f.Resume(context.Background(), []string{"b"})
		}, []presence.Presence{{Steered: true, Control: 3, State: "shutdown", Asked: presence.AskedQuarantine},
			{Steered: true, Control: 4, State: "process"}}, []int{1, 1, 0}},
		{"a pause of a kind", func(f *Fleet) (Asked, error) { return f.Pause(context.Background(), []string{"l"}, true) },
			[]presence.Presence{{Steered: true, Control: 1, State: "process"}, {Steered: true, Control: 2, State: "process"}}, []int{3, 3, 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				f := b.twoVMs(t)
				if _, err := f.Pause(t.Context(), []string{"k"}, true); err != nil { // the first revision
					t.Fatal(err)
				}
				asked, err := row.ask(f)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(row.beats))*fleetPoll+time.Second)
				defer cancel()
				asked.Workers = slices.DeleteFunc(asked.Workers, func(name string) bool { return name == "old-1" })
				var left []int
				err = f.Wait(ctx, asked, func(names []string) {
					left = append(left, len(names))
					if at := len(left) - 1; at < len(row.beats) {
						p := row.beats[at]
						p.Worker, p.VM = "b-1", "b"
						b.heartbeat(t, f, p)
					}
				})
				if want := row.left[len(row.left)-1]; (err == nil) != (want == 0) || want > 0 && !errors.Is(err, ErrNotFollowed) {
					t.Errorf("Wait = %v with %d workers left", err, want)
				}
				if diff := cmp.Diff(row.left, left); diff != "" {
					t.Errorf("workers left (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestFleetInTrouble: what cannot be read or written is an error, and a request that was written
// names its revision all the same.
func TestFleetInTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.twoVMs(t)
		refuse := func(container string) {
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if c.Container == container {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}
				}
				return storage.Fault{}
			})
		}
		refuse(b.names.Workers)
		if asked, err := f.Pause(t.Context(), nil, true); err == nil || asked.Revision != 1 {
			t.Errorf("a pause without heartbeats: revision %d, %v, want 1 and an error", asked.Revision, err)
		}
		if _, err := f.Drain(t.Context(), []string{"a"}, 0); err == nil {
			t.Error("a drain by name without heartbeats: want an error")
		}
		if err := f.Wait(t.Context(), Asked{}, func([]string) {}); err == nil || errors.Is(err, ErrNotFollowed) {
			t.Errorf("Wait without heartbeats: %v, want the error of the list", err)
		}
		refuse(b.names.Control)
		if asked, err := f.Drain(t.Context(), nil, 0); err == nil || asked.Revision != 0 {
			t.Errorf("a drain without the control document: revision %d, %v, want an error", asked.Revision, err)
		}
	})
}

// TestKnownOnly: a kind that no worker has and a VM without a heartbeat are refused with the
// nearest name, and nothing is changed. A worker that lists no kinds may have any.
func TestKnownOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.twoVMs(t)
		f.KnownOnly = true
		if _, err := f.Pause(t.Context(), []string{"rendre"}, true); err != nil {
			t.Errorf("Pause with workers that list no kinds = %v, want nil", err)
		}
		if _, err := f.Pause(t.Context(), nil, false); err != nil {
			t.Fatal(err)
		}
		for _, p := range []presence.Presence{
			{Worker: "a-1", Machine: presence.Machine{VM: "A"}, Steered: true, State: "process", Kinds: []string{"render"}},
			{Worker: "a-2", Machine: presence.Machine{VM: "A"}, Kinds: []string{"resize"}},
			{Worker: "b-1", Machine: presence.Machine{VM: "b"}, Kinds: []string{"render"}},
			{Worker: "old-1", Kinds: []string{"x"}}, {Worker: "gone-1", Kinds: []string{"x"}},
		} {
			b.heartbeat(t, f, p)
		}
		for _, c := range []struct {
			name string
			ask  func() error
			want string
		}{
			{"a misspelt kind", func() error { _, err := f.Pause(t.Context(), []string{"render", "rendre"}, true); return err },
				`no worker has kind "rendre" (did you mean "render"?)`},
			{"a kind that resembles none", func() error { _, err := f.Pause(t.Context(), []string{"completely-other"}, true); return err },
				`no worker has kind "completely-other"`},
			{"an unknown VM", func() error { _, err := f.Quarantine(t.Context(), []string{"a", "no-such-vm"}); return err },
				`no worker has a heartbeat of VM "no-such-vm"`},
		} {
			err := c.ask()
			if !errors.Is(err, ErrUnknownName) || err.Error() != c.want {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			if got := document(t, f); got != "" {
				t.Errorf("%s: the document has %q, want nothing", c.name, got)
			}
		}
		if _, err := f.Pause(t.Context(), []string{"render"}, true); err != nil {
			t.Errorf("Pause of a kind that workers have = %v", err)
		}
		if _, err := f.Quarantine(t.Context(), []string{"a", "old-1"}); err != nil {
			t.Errorf("Quarantine of a VM that has workers = %v", err)
		}
		f.KnownOnly = false
		if _, err := f.Pause(t.Context(), []string{"rendre"}, true); err != nil {
			t.Errorf("Pause of any kind without KnownOnly = %v", err)
		}
	})
}

// TestDamagedControlDocument: a request fails, and with Reset it replaces the document and keeps
// a copy.
func TestDamagedControlDocument(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		f := b.twoVMs(t)
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
