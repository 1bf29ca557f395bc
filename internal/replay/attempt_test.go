package replay

import (
	"testing"
	"time"
)

// TestAttempt follows single runs by hand: a job of 100 s, saved every 10 s in 1 s, claimed
// at 1000 s; a call takes 20 ms, a restore 2 s.
func TestAttempt(t *testing.T) {
	const s, ms, at = time.Second, time.Millisecond, 1000 * time.Second
	forever := life{seen: longest, end: longest}
	gone := func(seen, end time.Duration) life { return life{seen: at + seen, end: at + end} }
	for name, row := range map[string]struct {
		vm       life
		change   func(*worker)
		recorded time.Duration
		resumed  bool
		dirty    bool
		want     attempt // to, visible and lost since at
	}{
		// Saves begin 10 s after the last one ended: 10 s, 21 s, 32 s … after the claim. The tenth
		// begins after 109 s, when 20 ms of the work are left.
		"undisturbed": {vm: forever, want: attempt{end: Done, to: 20*ms + 110*s, saves: 10, saving: 10 * s, kept: 100 * s,
			calls: 10 + 11 + 2, lost: 20*ms + 110*s, visible: -at - 1}},
		// The notice comes 4 s after the first save; the last state is sent in 1 s.
		"released": {vm: gone(15*s, 45*s), want: attempt{end: Released, to: 16 * s, saves: 2, saving: 2 * s, kept: 14*s - 20*ms,
			calls: 2 + 1 + 1, lost: 15 * s, visible: 16*s + 20*ms}},
		// A notice in the middle of a save cuts it off, and the last state has everything.
		"released in a save": {vm: gone(10*s+500*ms, 45*s), want: attempt{end: Released, to: 11*s + 500*ms, saves: 1, saving: 1500 * ms,
			kept: 10*s - 20*ms, calls: 1 + 1 + 1, lost: 10*s + 500*ms, visible: 11*s + 520*ms}},
		// Half a second is too short for the state: the VM is gone before.
		"too short a notice": {vm: gone(15*s, 15*s+500*ms), want: attempt{end: Died, to: 15*s + 500*ms, saves: 1,
			saving: 1500 * ms, kept: 10*s - 20*ms, redone: 4 * s, calls: 1 + 1, lost: 15 * s, visible: 10*s + 30*s}},
		"died": {vm: gone(15*s, 15*s), want: attempt{end: Died, to: 15 * s, saves: 1, saving: s,
			kept: 10*s - 20*ms, redone: 4 * s, calls: 1 + 1, lost: 15 * s, visible: 10*s + 30*s}},
		"died in a save": {vm: gone(10*s+500*ms, 10*s+500*ms), want: attempt{end: Died, to: 10*s + 500*ms,
			saving: 500 * ms, redone: 10*s - 20*ms, calls: 1, lost: 10*s + 500*ms, visible: 40 * s}},
		"resumed": {vm: forever, recorded: 95 * s, resumed: true, want: attempt{end: Done, to: 7*s + 20*ms,
			kept: 5 * s, calls: 2 + 0 + 2, lost: 7*s + 20*ms, visible: -at - 1}},
		"resumed after a death saves at once": {vm: forever, recorded: 95 * s, resumed: true, dirty: true, want: attempt{end: Done,
			to: 8*s + 20*ms, saves: 1, saving: s, kept: 5 * s, calls: 2 + 1 + 2, lost: 8*s + 20*ms, visible: -at - 1}},
		// The first save proves that the job makes progress: the next one has the usual distance, not the shortest.
		"saves as usual after the first": {vm: forever, recorded: 5 * s, resumed: true, dirty: true,
			change: func(w *worker) { w.saves.Interval = 0 }, want: attempt{end: Done, to: 99*s + 20*ms, saves: 2, saving: 2 * s,
				kept: 95 * s, calls: 2 + 2 + 9 + 2, lost: 99*s + 20*ms, visible: -at - 1}},
		// A state of 8 s does not fit into three quarters of the budget: the last save stands.
		"too large for a notice": {vm: gone(25*s, 55*s), change: func(w *worker) { w.work.Save.Duration = 8 * s },
			want: attempt{end: Released, to: 32*s + 500*ms, saves: 1, saving: 8*s + 7500*ms, kept: 10*s - 20*ms, redone: 7 * s,
				calls: 1 + 3 + 1, lost: 25 * s, visible: 32*s + 520*ms}},
		"no checkpoints": {vm: gone(25*s, 55*s), change: func(w *worker) { w.policy.Never = true }, want: attempt{end: Released,
			to: 25 * s, redone: 25*s - 20*ms, calls: 2 + 1, lost: 25 * s, visible: 25*s + 20*ms}},
		"no notices": {vm: gone(5*s, 9*s), change: func(w *worker) { w.policy.Deaf = true }, want: attempt{end: Died, to: 9 * s,
			redone: 9*s - 20*ms, lost: 9 * s, visible: 30 * s}},
		"no release": {vm: gone(5*s, 35*s), change: func(w *worker) { w.policy.Hold = true }, want: attempt{end: Released,
			to: 6 * s, saves: 1, saving: s, kept: 5*s - 20*ms, calls: 1 + 1, lost: 5 * s, visible: 30 * s}},
		"longer visibility": {vm: gone(25*s, 25*s), change: func(w *worker) { w.policy.Visibility.Duration = time.Minute },
			want: attempt{end: Died, to: 25 * s, saves: 2, saving: 2 * s, kept: 20*s - 20*ms, redone: 3 * s, calls: 2 + 1, lost: 25 * s,
				visible: 80 * s}},
		"cut off by the horizon": {vm: gone(60*s, 90*s), change: func(w *worker) { w.horizon = at + 5*s }, want: attempt{end: Cut,
			to: 5 * s, kept: 5*s - 20*ms, lost: 5 * s, visible: -at - 1}},
		"cut off, no notices": {vm: gone(2*s, 90*s), change: func(w *worker) { w.horizon, w.policy.Deaf = at+5*s, true },
			want: attempt{end: Cut, to: 5 * s, kept: 5*s - 20*ms, lost: 5 * s, visible: -at - 1}},
		// The save after 10 s has the state after 7 s of work.
		"a state every 7 s": {vm: gone(15*s, 15*s), change: func(w *worker) { w.work.States.Duration = 7 * s }, want: attempt{end: Died,
			to: 15 * s, saves: 1, saving: s, kept: 7 * s, redone: 7*s - 20*ms, calls: 1 + 1, lost: 15 * s, visible: 10*s + 30*s}},
		// The record of a first run is written after 10 s without a state, and the job has none of its last moment.
		"no state at the notice": {vm: gone(15*s, 45*s), change: func(w *worker) { w.work.States.Duration, w.work.NoLast = 20*s, true },
			want: attempt{end: Released, to: 15 * s, redone: 15*s - 20*ms, calls: 1 + 1 + 1, lost: 15 * s, visible: 15*s + 20*ms}},
		"works while saved": {vm: gone(15*s, 15*s), change: func(w *worker) { w.work.Beside = true }, want: attempt{end: Died, to: 15 * s,
			saves: 1, kept: 10*s - 20*ms, redone: 5 * s, calls: 1 + 1, lost: 15 * s, visible: 10*s + 30*s}},
		"done while it is saved": {vm: forever, recorded: 91*s + 500*ms, resumed: true, change: func(w *worker) { w.work.Beside = true },
			want: attempt{end: Done, to: 10*s + 520*ms, kept: 8*s + 500*ms, calls: 2 + 1 + 2, lost: 10*s + 520*ms, visible: -at - 1}},
		"slow to stop": {vm: gone(15*s, 45*s), change: func(w *worker) { w.work.Stop.Duration = 2 * s }, want: attempt{end: Released,
			to: 18 * s, saves: 2, saving: 4 * s, kept: 14*s - 20*ms, calls: 2 + 1 + 1, lost: 15 * s, visible: 18*s + 20*ms}},
		// It is killed after half of the budget.
		"ignores the stop": {vm: gone(15*s, 45*s), change: func(w *worker) { w.work.Stop.Duration = time.Minute },
			want: attempt{end: Released, to: 21 * s, saves: 2, saving: 7 * s, kept: 14*s - 20*ms, calls: 2 + 2 + 1, lost: 15 * s,
				visible: 21*s + 20*ms}},
		"gone in the restore": {vm: gone(s, s), recorded: 95 * s, resumed: true, want: attempt{end: Died, to: s, calls: 2, lost: s,
			visible: 30 * s}},
	} {
		sc := Default()
		sc.Work.Length.Duration, sc.Work.Save.Duration, sc.Work.Restore.Duration = 100*s, s, 2*s
		sc.Policy.Interval.Duration = 10 * s
		w := worker{policy: sc.Policy, saves: sc.Policy.checkpoints(), work: sc.Work, losses: observed{{}}, horizon: hour}
		if row.change != nil {
			row.change(&w)
		}
		got := w.run(at, row.recorded, row.resumed, row.dirty, row.vm)
		if got.from != at || len(got.marks) > got.saves {
			t.Errorf("%s: %+v", name, got)
		}
		got.to, got.lost, got.visible = got.to-at, got.lost-at, got.visible-at
		got.from, got.works, got.marks = 0, 0, nil
		if got.end != row.want.end || got.to != row.want.to || got.saves != row.want.saves || got.saving != row.want.saving ||
			got.kept != row.want.kept ||
			got.redone != row.want.redone || got.visible != row.want.visible || got.calls != row.want.calls || got.lost != row.want.lost {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, row.want)
		}
	}
}
