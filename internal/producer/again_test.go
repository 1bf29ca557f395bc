package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// slowly makes a put take 100 ms, and loses the reply to some of the first,
// which the SDK then repeats.
func (b *rig) slowly() {
	began := time.Now()
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != storage.OpPutMessage {
			return storage.Fault{}
		}
		lost := c.N%7 == 0 && time.Since(began) < 500*time.Millisecond
		return storage.Fault{Before: 50 * time.Millisecond, After: 50 * time.Millisecond, DropReply: lost}
	})
}

// once demands that n jobs were committed, each one time.
func once(t *testing.T, committed []string, n int) {
	t.Helper()
	times := map[string]int{}
	for _, id := range committed {
		times[id]++
		if times[id] == 2 {
			t.Errorf("job %s was committed twice", id)
		}
	}
	if len(times) != n {
		t.Errorf("%d jobs were committed, want %d", len(times), n)
	}
}

// TestStoppedAndRunAgain stops a producer half-way through lines with ids of
// their own, lets workers begin, and runs it again from the start: no job is
// missing and none is done twice.
func TestStoppedAndRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		b := setup(t)
		b.Parallel = DefaultParallel
		b.slowly()
		ctx, cancel := context.WithTimeout(t.Context(), 1025*time.Millisecond)
		defer cancel()
		first, err := b.Run(ctx, Lines(numbered(n), Spec{}))
		if !errors.Is(err, ErrInterrupted) || first.Put == 0 || first.Put == n {
			t.Fatalf("first run = %+v, %v; want it stopped half-way", first, err)
		}
		committed := b.deliver(t, 50)
		again, err := b.Run(t.Context(), Lines(numbered(n), Spec{}))
		if want := (Summary{Put: n, Last: fmt.Sprintf("line %d", n)}); again != want || err != nil {
			t.Fatalf("second run = %+v, %v; want %+v", again, err, want)
		}
		if len(b.envelopes(t)) < n-50 {
			t.Errorf("%d jobs on the queue, want the %d that are not done", len(b.envelopes(t)), n-50)
		}
		once(t, append(committed, b.deliver(t, 3*n)...), n)
	})
}

// TestCheckIDsAgain: the status in an id's record decides whether the job is put.
func TestCheckIDsAgain(t *testing.T) {
	for status, put := range map[checkpoint.Status]bool{
		"": true, checkpoint.Open: true, checkpoint.Running: true, checkpoint.Done: false, checkpoint.Poison: false,
	} {
		t.Run("record "+string(status), func(t *testing.T) {
			b := setup(t)
			b.CheckIDs = true
			spec := Spec{ID: "a", Kind: "k"}
			if status != "" {
				spec = b.seed(t, "a", status)
			}
			var found checkpoint.Status
			b.Confirmed = func(_ Job, f checkpoint.Status) error { found = f; return nil }
			writes := b.writes()
			sum, err := b.Run(t.Context(), one(t, spec))
			e, onQueue := b.envelopes(t)["a"]
			if err != nil || onQueue != put || put != (sum.Put == 1) || !put && b.skipped[0] != "a "+string(status) {
				t.Fatalf("run = %+v, %v, message %t, skipped %q; want it put: %t", sum, err, onQueue, b.skipped, put)
			}
			if put && (found != status || e.Resume != (status != "") || !e.ChosenID) {
				t.Errorf("told %q, message %+v, want %q and resume where there is a record", found, e, status)
			}
			if n := b.writes() - writes; put && n != 1 || !put && n != 0 {
				t.Errorf("%d writes, want the message alone", n)
			}
		})
	}
}

// TestPutAgainCutShort cuts a put of a job that runs again at each of its calls, and repeats it: the
// job runs once more with the new payload, and nothing of it is left.
func TestPutAgainCutShort(t *testing.T) {
	payload := queue.BytesPayload(make([]byte, 100<<10))
	for _, status := range []checkpoint.Status{checkpoint.Done, checkpoint.Poison, checkpoint.Cancelled} {
		for name, fault := range map[string]storage.Fault{"the request": {DropRequest: true}, "the reply": {DropReply: true}} {
			for at := int64(1); ; at++ {
				reached := false
				t.Run(fmt.Sprintf("%s, %s of call %d", status, name, at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := setup(t)
						b.Again = true
						spec := b.seed(t, "a", status)
						spec.Payload = payload
						calls := int64(0)
						b.server.OnCall(func(storage.Call) storage.Fault {
							if calls++; calls >= at { // from here on, as when the machine of the owner dies
								reached = true
								return fault
							}
							return storage.Fault{}
						})
						_, _ = b.Run(t.Context(), one(t, spec))
						b.server.OnCall(nil)
						if _, found := b.envelopes(t)["a"]; reached || !found {
							sum, err := b.Run(t.Context(), one(t, spec))
							if want := (Summary{Put: 1, Last: "the job"}); sum != want || err != nil {
								t.Fatalf("repeated = %+v, %v, failed %q, want %+v", sum, err, b.failed, want)
							}
						}
						once(t, b.deliver(t, 50), 1)
						result, err := b.stores.Records.Result(t.Context(), "a")
						if want := "result of a with 102400 bytes"; err != nil || string(result) != want {
							t.Errorf("result = %q, %v, want %q", result, err, want)
						}
					})
				})
				if !reached || t.Failed() {
					if at < 5 {
						t.Errorf("calls of a put again = %d, want the read, the write, the payload and the message at least", at-1)
					}
					break
				}
			}
		}
	}
}

// TestPutAgainOf: a job that has ended runs again, also as other work; one that waits or runs does not,
// and one without a record is put as ever.
func TestPutAgainOf(t *testing.T) {
	for status, failed := range map[checkpoint.Status]string{
		"": "", checkpoint.Done: "", checkpoint.Poison: "", checkpoint.Cancelled: "",
		checkpoint.Open: "the job: the job has not ended: it is open", checkpoint.Running: "the job: the job has not ended: it is running",
	} {
		for _, dry := range []bool{false, true} {
			t.Run(fmt.Sprintf("record %s, dry %t", status, dry), func(t *testing.T) {
				b := setup(t)
				b.Again, b.DryRun = true, dry
				if status != "" {
					b.seed(t, "a", status)
				}
				var found checkpoint.Status
				b.Confirmed = func(_ Job, f checkpoint.Status) error { found = f; return nil }
				b.server.ResetCounts()
				_, err := b.Run(t.Context(), one(t, Spec{ID: "a", Kind: "other"}))
				if got := strings.Join(b.failed, ""); err != nil || got != failed || failed == "" && found != status {
					t.Errorf("run = %v, failed %q, told %q; want %q", err, got, found, failed)
				}
				if n := b.writes(); dry && n != 0 {
					t.Errorf("a dry run made %d writes", n)
				}
				e, onQueue := b.envelopes(t)["a"]
				if onQueue != (failed == "" && !dry) || onQueue && (e.Resume != (status != "") || e.Again > 0 != (status != "")) {
					t.Errorf("message = %+v, %t", e, onQueue)
				}
				if !onQueue {
					return
				}
				// Once more: a second put of the same is a duplicate, until a worker claims the job.
				if sum, err := b.Run(t.Context(), one(t, Spec{ID: "a", Kind: "other"})); status != "" && (err != nil || sum.Put != 1) {
					t.Errorf("second run = %+v, %v, failed %q", sum, err, b.failed)
				}
				once(t, b.deliver(t, 5), 1)
			})
		}
	}
}
