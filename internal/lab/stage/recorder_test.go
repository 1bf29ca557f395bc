package stage

import (
	"net/http"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
)

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

func at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

// freeTime returns how long a VM had a free slot, up to a second.
func (r *Recorder) freeTime(vm string, by int) (free time.Duration) {
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
		happens func(*Recorder, *vmState)
		want    int // seconds free, of 100
	}{
		"always":           {func(*Recorder, *vmState) {}, 100},
		"busy":             {func(r *Recorder, v *vmState) { r.track(v, "m", at(10)); r.untrack(v, "m", at(40)) }, 70},
		"an incident":      {func(_ *Recorder, v *vmState) { disturb(v, 10, 40); v.asked(at(40)) }, 70},
		"asks later":       {func(_ *Recorder, v *vmState) { disturb(v, 10, 20); v.asked(at(50)) }, 60},
		"does not ask":     {func(r *Recorder, v *vmState) { disturb(v, 10, 20); r.expire(v, at(80)) }, 60},
		"need not ask yet": {func(r *Recorder, v *vmState) { disturb(v, 10, 60); r.expire(v, at(80)) }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRecorder(4 * time.Second)
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
func (r *Recorder) seen(c Call, body string) {
	r.answered(c, &reply{status: http.StatusOK, header: http.Header{}, body: []byte(body)}, true)
}

// A run lasts from the claim of a message to its release or deferral, the end of
// its visibility timeout, or a claim by another. A message that was released
// without a write is no run.
func TestRuns(t *testing.T) {
	const claimed = `<L><QueueMessage><MessageId>m</MessageId><MessageText>eyJ2IjoxLCJpZCI6ImoifQ==</MessageText></QueueMessage></L>`
	claim := Call{Operation: MessageClaim, vm: "a"}
	record := Call{Operation: RecordWrite, vm: "a", job: "j", header: http.Header{"X-Ms-Meta-Messageid": {"m"},
		"X-Ms-Meta-Status": {"running"}}}
	update := func(hides time.Duration) Call {
		return Call{Operation: MessageUpdate, vm: "a", message: "m", hides: hides}
	}
	for name, row := range map[string]struct {
		happens func(*Recorder)
		runs    int
		held    bool
	}{
		"released":              {func(v *Recorder) { v.seen(record, ""); v.seen(update(0), "") }, 1, false},
		"deferred after work":   {func(v *Recorder) { v.seen(record, ""); v.seen(update(30*time.Second), "") }, 1, false},
		"deferred without work": {func(v *Recorder) { v.seen(update(30*time.Second), "") }, 0, false},
		"renewed":               {func(v *Recorder) { v.seen(record, ""); v.seen(update(v.visibility), "") }, 0, true},
		"claimed by another":    {func(v *Recorder) { v.seen(record, ""); v.seen(Call{Operation: MessageClaim, vm: "b"}, claimed) }, 1, false},
		"killed":                {func(v *Recorder) { v.Killed("a") }, 1, false},
		"frozen":                {func(v *Recorder) { v.Frozen("a") }, 1, false},
		"visible again":         {func(v *Recorder) { v.expire(v.vm("a"), time.Now().Add(time.Minute)) }, 1, false},
		"its next claim is lost": {func(v *Recorder) {
			v.seen(record, "")
			v.answered(claim, &reply{status: 200, body: []byte(claimed)}, false)
		}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := NewRecorder(4 * time.Second)
			v.Expect("j", oracle.Job{Put: noon}, nil)
			v.seen(claim, claimed)
			if v.Held("a") != 1 {
				t.Fatal("a claimed message is not held")
			}
			row.happens(v)
			if got, held := len(v.facts.Jobs["j"].Runs), len(v.vm("a").holds) == 1; got != row.runs || held != row.held {
				t.Errorf("runs = %d, held: %t, want %d, %t", got, held, row.runs, row.held)
			}
		})
	}
}
