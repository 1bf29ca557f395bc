package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// refusal is the fault of a call that the account refuses.
var refusal = storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}

// TestOrdered: a listing in another order, or with a name twice, ends with an error. An error of
// the listing is returned as it is.
func TestOrdered(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	slices.SortFunc(ids, comparePaths)
	failed := errors.New("no listing")
	for name, row := range map[string]struct {
		ids  []string // "" fails
		want error
		seen int
	}{
		"in order":      {ids, nil, 4},
		"twice":         {[]string{ids[0], ids[1], ids[1], ids[2]}, errOrder, 3},
		"back":          {[]string{ids[0], ids[2], ids[1], ids[3]}, errOrder, 3},
		"fails":         {[]string{ids[0], ids[1], "", ids[2]}, failed, 3},
		"fails first":   {[]string{"", ids[0]}, failed, 1},
		"nothing":       {},
		"one":           {ids[3:], nil, 1},
		"fails at last": {[]string{ids[3], ""}, failed, 2},
	} {
		seen, err := 0, error(nil)
		for _, err = range ordered(func(yield func(string, error) bool) {
			for _, id := range row.ids {
				if id == "" && !yield("", failed) || id != "" && !yield(id, nil) {
					return
				}
			}
		}, func(id string) string { return id }) {
			seen++
		}
		if !errors.Is(err, row.want) || seen != row.seen {
			t.Errorf("%s: %d items, then %v; want %d, then %v", name, seen, err, row.seen, row.want)
		}
	}
}

// TestCleanOfPoisonThatCannotBeRead: nothing is removed if the messages behind the front of the
// poison queue cannot be read: they may be messages of these jobs.
func TestCleanOfPoisonThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 33 {
			b.put(t, given{id: fmt.Sprint("job-", i), status: checkpoint.Done})
		}
		time.Sleep(MinCleanAge)
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpGetMessages {
				return refusal
			}
			return storage.Fault{}
		})
		got, err := b.cleaner(t).Clean(t.Context(), nil, nil)
		if err == nil || got != (CleanReport{}) || len(b.server.Blobs(b.names.Records)) != 33 {
			t.Errorf("Clean = %+v, %v, want an error and nothing removed", got, err)
		}
	})
}

// TestCleanWhileMessagesAreHidden: nothing is removed while an interrupted command hides messages of
// the poison queue, which may be messages of these jobs.
func TestCleanWhileMessagesAreHidden(t *testing.T) {
	for _, messages := range []int{1, 40} {
		inBubble(t, func(t *testing.T, b *rig) {
			for i := range messages {
				b.put(t, given{id: fmt.Sprint("job-", i), status: checkpoint.Done})
			}
			b.ended(t, "other", "k", checkpoint.Done, 0)
			time.Sleep(MinCleanAge)
			if _, err := b.stores.Poison.Claim(t.Context(), 1, hold); err != nil {
				t.Fatal(err)
			}
			got, err := b.cleaner(t).Clean(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), "about 1 messages of the poison queue are hidden") || got != (CleanReport{}) {
				t.Errorf("Clean of %d jobs = %+v, %v, want an error and nothing removed", messages, got, err)
			}
			time.Sleep(hold)
			if got, err := b.cleaner(t).Clean(t.Context(), nil, nil); err != nil || got.Done != 1 || got.Poison != messages {
				t.Errorf("Clean of %d jobs later = %+v, %v, want only the job without a message removed", messages, got, err)
			}
		})
	}
}

// TestCleanInterrupted: the end of the context ends a clean with its cause, also among logs
// without records and among outputs. Removals in progress are finished.
func TestCleanInterrupted(t *testing.T) {
	const jobs = 3 * cleanParallel
	for name, put := range map[string]func(t *testing.T, b *rig, id string){
		"records": func(t *testing.T, b *rig, id string) { b.ended(t, id, "k", checkpoint.Done, 0) },
		"logs": func(t *testing.T, b *rig, id string) {
			if err := b.log(t.Context(), id, time.Now(), 3); err != nil {
				t.Fatal(err)
			}
		},
		"outputs": func(t *testing.T, b *rig, id string) { b.send(t, id) },
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			for i := range jobs {
				put(t, b, fmt.Sprint("job-", i))
			}
			b.server.SetFullPages()
			time.Sleep(MinCleanAge)
			cause := errors.New("interrupted")
			ctx, cancel := context.WithCancelCause(t.Context())
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == storage.OpDeleteBlob {
					cancel(cause)
				}
				return storage.Fault{}
			})
			got, err := b.cleaner(t).Clean(ctx, nil, func(id string, err error) { t.Errorf("%s: job %s: %v", name, id, err) })
			left := len(b.server.Blobs(b.names.Records)) + len(b.server.Blobs(b.names.Payloads)) + len(b.server.Blobs(b.names.Outputs))
			removed := got.Done + got.Logs + got.Outputs
			if !errors.Is(err, cause) || removed < 1 || removed > cleanParallel+1 || left != jobs-removed {
				t.Errorf("%s: Clean = %+v, %v, %d left of %d; want its cause, and what was begun removed", name, got, err, left, jobs)
			}
		})
	}
}

// send stores an output that no record names.
func (b *rig) send(t *testing.T, id string) {
	t.Helper()
	set := b.stores.Outputs.NewSet(id, 1, "33333333-dead", outputs.Limits{Files: 1, Bytes: 10}, "", nil)
	if _, err := set.Send(t.Context(), "x", 5, strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
}

// TestCleanGarbage: outputs without a record are removed at the age, job by job: the files of one job
// are not taken for the files of the job before.
func TestCleanGarbage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 10 {
			b.send(t, fmt.Sprint("orphan-", i))
		}
		for i := range 3 {
			id := fmt.Sprint("runs-", i)
			b.send(t, id)
			b.ended(t, id, "k", checkpoint.Running, 0)
		}
		if err := b.log(t.Context(), "alone", time.Now(), 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(MinCleanAge - time.Second)
		got, err := b.cleaner(t).Clean(t.Context(), nil, nil)
		if want := (CleanReport{Read: 3}); err != nil || got != want {
			t.Errorf("Clean before the age = %+v, %v, want %+v", got, err, want)
		}
		time.Sleep(time.Second)
		got, err = b.cleaner(t).Clean(t.Context(), nil, nil)
		want := CleanReport{Read: 3, Outputs: 10, OutputBytes: 50, Logs: 1, LogBytes: got.LogBytes}
		if err != nil || got != want || got.LogBytes == 0 || len(b.server.Blobs(b.names.Outputs)) != 3 {
			t.Errorf("Clean = %+v, %v, %d outputs left, want %+v, and 3 of running jobs", got, err, len(b.server.Blobs(b.names.Outputs)), want)
		}
	})
}

// withOutputs leaves a job that is done and has one file.
func withOutputs(t *testing.T, b *rig) {
	t.Helper()
	b.ended(t, "a", "k", checkpoint.Running, 0)
	r := b.record(t, "a")
	set := b.stores.Outputs.NewSet("a", 1, r.Token, outputs.Limits{Files: 10, Bytes: 1 << 20}, "", nil)
	if _, err := set.Send(t.Context(), "x", 5, strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	ref, err := set.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := checkpoint.Delivery{ID: "a", Kind: "k", PayloadHash: r.PayloadHash, MessageID: "m"}
	claim, err := b.stores.Records.Acquire(t.Context(), d, r, "vm_0")
	if err != nil {
		t.Fatal(err)
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Outputs = checkpoint.Outputs(ref); return f })
	if err := claim.Commit(t.Context(), []byte("12345")); err != nil {
		t.Fatal(err)
	}
}

// TestCleanOutputsInTrouble: a call about outputs that is refused is reported for its job, whether
// the outputs go with their job or as garbage.
func TestCleanOutputsInTrouble(t *testing.T) {
	for _, withJob := range []bool{false, true} {
		for at, reached := 1, true; reached; at++ {
			inBubble(t, func(t *testing.T, b *rig) {
				withOutputs(t, b)
				b.send(t, "a")      // by a worker that lost the job
				b.send(t, "orphan") // of a record that is gone
				time.Sleep(MinCleanAge)
				what := b.refuseCall(at)
				c := b.cleaner(t)
				c.Select = func(checkpoint.Record) bool { return withJob }
				failed := 0
				got, err := c.Clean(t.Context(), nil, func(string, error) { failed++ })
				if reached = what() != ""; reached && err == nil && (failed == 0 || got.Failed != failed) {
					t.Errorf("call %d, %s: it was refused, and the report is %+v, %d failures", at, what(), got, failed)
				}
				if !reached && (err != nil || failed > 0) {
					t.Errorf("without a refusal: %v, %d failures", err, failed)
				}
			})
		}
	}
}
