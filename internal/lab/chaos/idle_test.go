package chaos

import (
	"net/http"
	"testing"
	"time"
)

// view is a tally and what it judges, with two VMs that are at work: "a" has the
// kind of programs, "b" lacks it.
func viewOf(programs map[string]bool) *tally {
	t := newTally(4 * time.Second)
	for name, has := range programs {
		v := t.vm(name)
		v.slots, v.programs, v.backAt = 1, has, at(0)
		v.asked(at(0))
	}
	return t
}

// job adds a job that was put at second from and ended at to, with these runs.
func (t *tally) job(program bool, from, to int, runs ...span) {
	t.jobs["j"] = &jobFacts{put: at(from), ended: at(to), program: program, runs: runs}
}

func during(from, to int) span { return span{at(from), at(to)} }

// TestIdle: only time counts in which the job waited and one and the same worker
// could have taken it.
func TestIdle(t *testing.T) {
	both := map[string]bool{"a": true, "b": false}
	for name, row := range map[string]struct {
		happens func(*tally)
		want    int // seconds
	}{
		"taken at once":               {func(v *tally) { v.job(false, 10, 40, during(11, 40)) }, 1},
		"never taken":                 {func(v *tally) { v.job(false, 10, 40) }, 30},
		"between two runs":            {func(v *tally) { v.job(false, 10, 40, during(10, 20), during(32, 40)) }, 12},
		"two runs that overlap":       {func(v *tally) { v.job(false, 10, 40, during(10, 30), during(12, 20), during(33, 40)) }, 3},
		"workers full":                {func(v *tally) { v.job(false, 10, 40); v.fill("a", 5, 35); v.fill("b", 5, 37) }, 5},
		"two workers full in turn":    {func(v *tally) { v.job(false, 10, 40); v.fill("a", 5, 25); v.fill("b", 25, 41) }, 15},
		"a program, the other full":   {func(v *tally) { v.job(true, 10, 40); v.fill("a", 5, 38) }, 2},
		"not of those that lack it":   {func(v *tally) { v.job(true, 10, 40); v.fill("a", 5, 41) }, 0},
		"the worker is disturbed":     {func(v *tally) { v.job(true, 10, 40); v.disturb("a", 5, 30) }, 10},
		"it has not asked yet":        {func(v *tally) { v.job(true, 10, 40); v.disturb("a", 5, 39) }, 1},
		"no outcome":                  {func(v *tally) { v.job(false, 10, 40); v.jobs["j"].ended = time.Time{} }, 90},
		"a run beyond the outcome":    {func(v *tally) { v.job(false, 10, 40, during(12, 50)) }, 2},
		"across periods of the index": {func(v *tally) { v.job(false, 3, 97) }, 94},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(both)
			row.happens(v)
			if got, _ := worstIdle(v.jobs, v.vms, at(100)); got.length() != time.Duration(row.want)*time.Second {
				t.Errorf("worstIdle = %s, want %d s", got, row.want)
			}
		})
	}
}

// fill has a worker hold another message.
func (t *tally) fill(vm string, from, to int) {
	v := t.vm(vm)
	t.hold(v, vm, at(from))
	t.letGo(v, vm, at(to))
}

// disturb lets something happen to a worker, which asks for work right after it.
func (t *tally) disturb(vm string, from, to int) {
	v := t.vm(vm)
	v.able, v.backAt = false, time.Time{}
	v.look(at(from))
	v.backAt = at(to)
	v.asked(at(to))
}

// A worker that asks for nothing after an incident counts as one that could, after
// a while.
func TestWorkerThatDoesNotAsk(t *testing.T) {
	v := viewOf(map[string]bool{"a": true})
	a := v.vm("a")
	a.able, a.backAt = false, time.Time{}
	a.look(at(10))
	a.backAt = at(20)
	v.job(true, 15, 80)
	v.expire(a, at(80))
	want := at(80).Sub(at(20).Add(returnLimit))
	if got, _ := worstIdle(v.jobs, v.vms, at(80)); got.length() != want {
		t.Errorf("worstIdle = %s, want %s: returnLimit after the incident", got, want)
	}
}

// seen is a call of a VM that storage answered with success.
func (t *tally) seen(c call, body string) {
	t.saw(c, &reply{status: http.StatusOK, header: http.Header{}, body: []byte(body)}, true)
}

// A worker works on a job while it holds its message, from the claim to a release
// or deferral, the end of the visibility, or a claim by another; a hold in which
// it wrote nothing and that it gave up is none.
func TestRuns(t *testing.T) {
	const claimed = `<L><QueueMessage><MessageId>m</MessageId><MessageText>eyJpZCI6ImoifQ==</MessageText></QueueMessage></L>`
	claim := call{operation: messageClaim, vm: "a"}
	record := call{operation: recordWrite, vm: "a", job: "j", metadata: http.Header{"X-Ms-Meta-Messageid": {"m"}, "X-Ms-Meta-Status": {"running"}}}
	update := func(hides time.Duration) call {
		return call{operation: messageUpdate, vm: "a", message: "m", hides: hides}
	}
	for name, row := range map[string]struct {
		happens func(*tally)
		runs    int
		held    bool
	}{
		"released":               {func(v *tally) { v.seen(record, ""); v.seen(update(0), "") }, 1, false},
		"deferred after work":    {func(v *tally) { v.seen(record, ""); v.seen(update(30*time.Second), "") }, 1, false},
		"deferred without work":  {func(v *tally) { v.seen(update(30*time.Second), "") }, 0, false},
		"renewed":                {func(v *tally) { v.seen(record, ""); v.seen(update(v.visibility), "") }, 0, true},
		"claimed by another":     {func(v *tally) { v.seen(record, ""); v.seen(call{operation: messageClaim, vm: "b"}, claimed) }, 1, false},
		"killed":                 {func(v *tally) { v.killed("a") }, 1, false},
		"frozen":                 {func(v *tally) { v.stands("a") }, 1, false},
		"visible by now":         {func(v *tally) { v.expire(v.vm("a"), time.Now().Add(time.Minute)) }, 1, false},
		"its next claim is lost": {func(v *tally) { v.seen(record, ""); v.saw(claim, &reply{status: 200, body: []byte(claimed)}, false) }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTally(4 * time.Second)
			v.expect("j", payloadOf(false), false, 1)
			v.seen(claim, claimed)
			if v.inHand("a") != 1 {
				t.Fatal("a claimed message is not in hand")
			}
			row.happens(v)
			if got, held := len(v.jobs["j"].runs), len(v.vm("a").holds) == 1; got != row.runs || held != row.held {
				t.Errorf("runs = %d, held: %t, want %d, %t", got, held, row.runs, row.held)
			}
		})
	}
}

// A job is in quarantine after three unclean exits in a row, and out of it with a
// new state; its idle time counts apart.
func TestQuarantineCountsApart(t *testing.T) {
	for name, row := range map[string]struct {
		history *history
		want    int
	}{
		"nothing written":   {new(history), 0},
		"two unclean exits": {deaths(1), 2},
		"three":             {deaths(2), 3},
		"a release between": {deaths(2).but(1, func(w *write) { w.status = "open" }), 1},
		"a state between":   {deaths(2).but(1, func(w *write) { w.state = "s" }), 1},
		"a state at last":   {deaths(2).but(2, func(w *write) { w.state = "s" }), 0},
	} {
		f := row.history.over()
		if got := f.uncleanExits(at(50)); got != row.want {
			t.Errorf("%s: unclean exits = %d, want %d", name, got, row.want)
		}
		f.ended = at(70)
		v := viewOf(map[string]bool{"a": true})
		v.jobs["j"] = f
		f.runs = []span{during(0, 60)}
		worst, quarantined := worstIdle(v.jobs, v.vms, at(70))
		if want := row.want >= quarantineAfter; (quarantined.length() == 10*time.Second) != want || (worst.length() == 10*time.Second) == want {
			t.Errorf("%s: idle %s, in quarantine %s, want 10 s in quarantine: %t", name, worst.length(), quarantined.length(), want)
		}
	}
}
