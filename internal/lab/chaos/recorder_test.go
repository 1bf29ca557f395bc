package chaos

import (
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

func at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

// freeTime returns how long a VM had a free slot, up to a second.
func (r *recorder) freeTime(vm string, by int) (free time.Duration) {
	for _, span := range r.vm(vm).free.Free(at(by)) {
		free += span.Length()
	}
	return free
}

// TestFreeSlots: a worker could take a job while it has no incident, asks for
// messages and holds fewer than it has slots. If it does not ask after an
// incident, it counts as able after returnLimit, 30 s.
func TestFreeSlots(t *testing.T) {
	for name, row := range map[string]struct {
		happens func(*recorder, *vmState)
		want    int // seconds free, of 100
	}{
		"always":           {func(*recorder, *vmState) {}, 100},
		"busy":             {func(r *recorder, v *vmState) { r.track(v, "m", at(10)); r.untrack(v, "m", at(40)) }, 70},
		"an incident":      {func(_ *recorder, v *vmState) { disturb(v, 10, 40); v.asked(at(40)) }, 70},
		"asks later":       {func(_ *recorder, v *vmState) { disturb(v, 10, 20); v.asked(at(50)) }, 60},
		"does not ask":     {func(r *recorder, v *vmState) { disturb(v, 10, 20); r.expire(v, at(80)) }, 60},
		"need not ask yet": {func(r *recorder, v *vmState) { disturb(v, 10, 60); r.expire(v, at(80)) }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(4 * time.Second)
			v := r.vm("a")
			v.backAt = at(0)
			v.asked(at(0))
			row.happens(r, v)
			if got := r.freeTime("a", 100); got != time.Duration(row.want)*time.Second {
				t.Errorf("free for %s, want %d s", got, row.want)
			}
		})
	}
}

// disturb gives a VM an incident.
func disturb(v *vmState, from, to int) {
	v.able, v.backAt = false, time.Time{}
	v.update(at(from))
	v.backAt = at(to)
}

// seen records a call of a VM that storage answered with success.
func (r *recorder) seen(c call, body string) {
	r.answered(c, &reply{status: http.StatusOK, header: http.Header{}, body: []byte(body)}, true)
}

// A run lasts from the claim of a message to its release or deferral, the end of
// its visibility timeout, or a claim by another. A message that was released
// without a write is no run.
func TestRuns(t *testing.T) {
	const claimed = `<L><QueueMessage><MessageId>m</MessageId><MessageText>eyJ2IjoxLCJpZCI6ImoifQ==</MessageText></QueueMessage></L>`
	claim := call{operation: messageClaim, vm: "a"}
	record := call{operation: recordWrite, vm: "a", job: "j", header: http.Header{"X-Ms-Meta-Messageid": {"m"},
		"X-Ms-Meta-Status": {"running"}}}
	update := func(hides time.Duration) call {
		return call{operation: messageUpdate, vm: "a", message: "m", hides: hides}
	}
	for name, row := range map[string]struct {
		happens func(*recorder)
		runs    int
		held    bool
	}{
		"released":              {func(v *recorder) { v.seen(record, ""); v.seen(update(0), "") }, 1, false},
		"deferred after work":   {func(v *recorder) { v.seen(record, ""); v.seen(update(30*time.Second), "") }, 1, false},
		"deferred without work": {func(v *recorder) { v.seen(update(30*time.Second), "") }, 0, false},
		"renewed":               {func(v *recorder) { v.seen(record, ""); v.seen(update(v.visibility), "") }, 0, true},
		"claimed by another":    {func(v *recorder) { v.seen(record, ""); v.seen(call{operation: messageClaim, vm: "b"}, claimed) }, 1, false},
		"killed":                {func(v *recorder) { v.killed("a") }, 1, false},
		"frozen":                {func(v *recorder) { v.frozen("a") }, 1, false},
		"visible again":         {func(v *recorder) { v.expire(v.vm("a"), time.Now().Add(time.Minute)) }, 1, false},
		"its next claim is lost": {func(v *recorder) {
			v.seen(record, "")
			v.answered(claim, &reply{status: 200, body: []byte(claimed)}, false)
		}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newRecorder(4 * time.Second)
			v.expect("j", payload{Seed: "a", Steps: 6, Each: 1}, false, 1)
			v.seen(claim, claimed)
			if v.held("a") != 1 {
				t.Fatal("a claimed message is not held")
			}
			row.happens(v)
			if got, held := len(v.history.Jobs["j"].Runs), len(v.vm("a").holds) == 1; got != row.runs || held != row.held {
				t.Errorf("runs = %d, held: %t, want %d, %t", got, held, row.runs, row.held)
			}
		})
	}
}
