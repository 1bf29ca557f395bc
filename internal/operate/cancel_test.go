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
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// canceller cancels through the operator's link.
func (b *rig) canceller(t *testing.T) *Canceller {
	t.Helper()
	s := b.connect(t, b.link)
	return &Canceller{Records: s.Records, Control: s.Control, Name: "spotctl@test", Reason: "not needed"}
}

// cancel cancels jobs and returns their outcomes by id.
func (b *rig) cancel(ctx context.Context, t *testing.T, ids ...string) (map[string]CancelOutcome, error) {
	t.Helper()
	outcomes := map[string]CancelOutcome{}
	err := b.canceller(t).Cancel(ctx, slices.Values(ids), func(o CancelOutcome) error {
		outcomes[o.ID] = o
		return nil
	})
	return outcomes, err
}

// named returns the jobs that the control document names.
func (b *rig) named(t *testing.T) (ids []string) {
	t.Helper()
	found, _, err := b.stores.Control.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range found.Document.Cancels {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestCancelEveryCall makes each fault happen at each storage call of a cancel, which
// is then repeated. Every job ends cancelled and is named in the control document, and
// no job that had ended is changed.
func TestCancelEveryCall(t *testing.T) {
	for _, m := range faults {
		t.Run(m.name, func(t *testing.T) {
			points := 0
			for at := 1; ; at++ {
				reached := false
				inBubble(t, func(t *testing.T, b *rig) {
					b.put(t, given{id: "runs", state: "half", outputs: 2, status: checkpoint.Running})
					b.put(t, given{id: "ended", status: checkpoint.Done})
					done := b.record(t, "ended").ETag
					b.link.effect, b.link.drop = m.effect, at
					if m.death {
						b.link.drop, b.link.dieAt = 0, at
					}
					_, _ = b.cancel(t.Context(), t, "runs", "waits", "ended") // however it ended: it is done again
					reached = b.link.count() >= at
					b.restart(t)
					outcomes, err := b.cancel(t.Context(), t, "runs", "waits", "ended")
					if err != nil || outcomes["runs"].Action != Cancelled || outcomes["waits"].Action != Cancelled &&
						outcomes["waits"].Action != Barred || outcomes["ended"].Action != Over {
						t.Errorf("call %d: repeated: %+v, %v", at, outcomes, err)
					}
					for _, id := range []string{"runs", "waits"} {
						if r := b.record(t, id); r.Status != checkpoint.Cancelled || r.HasState() || r.Outputs.Files > 0 {
							t.Errorf("call %d: job %s is %s, with a state: %t; want it cancelled, without", at, id, r.Status, r.HasState())
						}
					}
					if named := b.named(t); !slices.Equal(named, []string{"runs", "waits"}) {
						t.Errorf("call %d: the control document names %q, want runs and waits", at, named)
					}
					if b.record(t, "ended").ETag != done {
						t.Errorf("call %d: the record of a job that is done was changed", at)
					}
				})
				if !reached || t.Failed() {
					break
				}
				points++
			}
			if points < 7 {
				t.Errorf("calls at which it happened = %d, want all of them", points)
			}
		})
	}
}

// TestCancelMany: two calls a job, two more for a thousand, and a bounded document.
func TestCancelMany(t *testing.T) {
	jobs := proof.Times(1001, 2001)
	thousands := int64(jobs+999) / 1000
	inBubble(t, func(t *testing.T, b *rig) {
		ids := make([]string, jobs)
		for i := range ids {
			ids[i] = fmt.Sprintf("job-%d", i)
		}
		b.server.ResetCounts()
		outcomes, err := b.cancel(t.Context(), t, ids...)
		if err != nil || len(outcomes) != jobs {
			t.Fatalf("Cancel = %d outcomes, %v, want %d", len(outcomes), err, jobs)
		}
		calls := b.server.Counts()
		t.Logf("calls for %d jobs: %v", jobs, calls)
		if calls[storage.OpGetBlobProperties] != int64(jobs) || calls[storage.OpPutBlockList] != int64(jobs) ||
			calls[storage.OpGetBlob] != thousands || calls[storage.OpPutBlob] != thousands {
			t.Errorf("calls = %v, want two for each job, and two for each thousand", calls)
		}
		found, _, err := b.stores.Control.Read(t.Context(), "")
		if err != nil || len(found.Document.Cancels) > control.MaxCancels || found.Document.CheckAll.IsZero() {
			t.Errorf("document names %d jobs, CheckAll %s, %v, want at most %d, and that all are checked", len(found.Document.Cancels),
				found.Document.CheckAll, err, control.MaxCancels)
		}
		b.expectProgress(t, jobs)
	})
}

// expectProgress reads the records of so many jobs in a clean that removes none, with and without
// progress.
func (b *rig) expectProgress(t *testing.T, jobs int) {
	t.Helper()
	c := b.cleaner(t)
	c.SkipOrphanedLogs, c.Select = true, func(checkpoint.Record) bool { return false }
	var read []int
	for _, progress := range []func(CleanReport){func(r CleanReport) { read = append(read, r.Read) }, nil} {
		if got, err := c.Clean(t.Context(), progress, nil); err != nil || got.Read != jobs {
			t.Errorf("Clean = %+v, %v, want %d records read", got, err, jobs)
		}
	}
	if len(read) != jobs/progressEvery || read[0] != progressEvery {
		t.Errorf("progress at %d records, want one call for each %d", read, progressEvery)
	}
}

// TestCancelWithoutRecord: a job without a record is cancelled if its message is seen,
// unknown if the queues show that there is none, and barred where they cannot tell.
func TestCancelWithoutRecord(t *testing.T) {
	for name, row := range map[string]struct {
		messages int // on the queue, the job's message last
		hidden   bool
		refused  bool // the queues cannot be read
		cancel   string
		want     Action
	}{
		"no messages":           {cancel: "typo", want: Unknown},
		"others wait":           {messages: 3, cancel: "typo", want: Unknown},
		"it waits":              {messages: 3, cancel: "job-2", want: Cancelled},
		"a message is hidden":   {messages: 1, hidden: true, cancel: "job-0", want: Barred},
		"too many messages":     {messages: queue.MaxClaim + 1, cancel: "job-32", want: Barred},
		"in front of too many":  {messages: queue.MaxClaim + 1, cancel: "job-0", want: Cancelled},
		"queues cannot be read": {refused: true, cancel: "typo", want: Barred},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				for i := range row.messages {
					if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: fmt.Sprintf("job-%d", i), Kind: "k"}, 0); err != nil {
						t.Fatal(err)
					}
				}
				if row.hidden {
					if _, err := b.stores.Queue.Claim(t.Context(), 1, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				b.server.OnCall(func(c storage.Call) storage.Fault {
					if row.refused && c.Service == storage.QueueService {
						return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
					}
					return storage.Fault{}
				})
				c := b.canceller(t)
				c.Queues = func(context.Context) ([]*queue.Queue, error) { return append(b.Queue.All(), b.OnDemand), nil }
				var got CancelOutcome
				if err := c.Cancel(t.Context(), slices.Values([]string{row.cancel}), func(o CancelOutcome) error { got = o; return nil }); err != nil {
					t.Error(err)
				}
				written := b.record(t, row.cancel).Status == checkpoint.Cancelled
				if got.Action != row.want || written != (row.want != Unknown) || (len(b.named(t)) == 1) != written {
					t.Errorf("cancel = %s (%s), a record: %t; want %s", got.Action, got.Detail, written, row.want)
				}
			})
		})
	}
}

// refuse refuses some operations in a container.
func (b *rig) refuse(container string, operations ...string) {
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Container == container && slices.Contains(operations, c.Operation) {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}
		}
		return storage.Fault{}
	})
}

// TestCancelTellsWorkers: workers are told of each job whose record may have been written,
// also when the run ends early; it is an error if they cannot be told.
func TestCancelTellsWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for _, id := range []string{"a", "b", "c"} {
			b.put(t, given{id: id, status: checkpoint.Running})
		}
		b.refuse(b.names.Records, storage.OpPutBlob, storage.OpPutBlockList)
		outcomes, err := b.cancel(t.Context(), t, "a")
		if err != nil || outcomes["a"].Action != Failed || !slices.Equal(b.named(t), []string{"a"}) {
			t.Errorf("a write that fails = %+v, %v, named %q, want it Failed and named", outcomes, err, b.named(t))
		}
		b.server.OnCall(nil)

		ctx, stop := context.WithCancel(t.Context())
		err = b.canceller(t).Cancel(ctx, slices.Values([]string{"b"}), func(CancelOutcome) error { stop(); return nil })
		if named := b.named(t); !slices.Equal(named, []string{"a", "b"}) {
			t.Errorf("an interruption after the cancel = %v, named %q, want a and b", err, named)
		}

		b.refuse(b.names.Control, storage.OpPutBlob)
		outcomes, err = b.cancel(t.Context(), t, "c")
		if err == nil || !strings.Contains(err.Error(), "workers were not told of 1 jobs") || outcomes["c"].Action != Cancelled {
			t.Errorf("a control document that cannot be written = %+v, %v, want the job cancelled and an error", outcomes, err)
		}
	})
}

// TestCancelOfAJobClaimedMeanwhile: a job whose first worker claims it during the cancel is
// cancelled, and not barred.
func TestCancelOfAJobClaimedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: "hidden", Kind: "k"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == "PeekMessages" {
				d := checkpoint.Delivery{ID: "hidden", Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "m"}
				if _, err := b.stores.Records.Create(context.Background(), d, "vm_0"); err != nil {
					t.Error(err)
				}
			}
			return storage.Fault{}
		})
		c := b.canceller(t)
		c.Queues = func(context.Context) ([]*queue.Queue, error) { return []*queue.Queue{b.stores.Queue}, nil }
		var got CancelOutcome
		err := c.Cancel(t.Context(), slices.Values([]string{"hidden"}), func(o CancelOutcome) error { got = o; return nil })
		if err != nil || got.Action != Cancelled || got.Was.Owner != "vm_0" {
			t.Errorf("Cancel = %s (was of %q), %v, want it cancelled on vm_0", got.Action, got.Was.Owner, err)
		}
		if r := b.record(t, "hidden"); r.Status != checkpoint.Cancelled {
			t.Errorf("the record is %s, want cancelled", r.Status)
		}
	})
}

// TestCancelSaysWhatWas: the outcome names the job's last status, and the record has the reason.
func TestCancelSaysWhatWas(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.put(t, given{id: "runs", status: checkpoint.Running})
		b.put(t, given{id: "waits", status: checkpoint.Open})
		b.put(t, given{id: "poison"})
		b.put(t, given{id: "done", status: checkpoint.Done})
		b.put(t, given{id: "newer"})
		b.setVersion(t, "newer", "99")
		for _, row := range []struct {
			id     string
			want   Action
			detail string
		}{
			{"runs", Cancelled, "it was running on vm_0, which stops it within 30 s"},
			{"runs", Cancelled, "it was cancelled before"},
			{"waits", Cancelled, "it was waiting for a worker"},
			{"poison", Over, "it is in the poison queue: spotctl poison purge cancels it there"},
			{"done", Over, "it is done already; its result stands"},
			{"newer", Refused, "its record was written by a newer version; use a spotctl of that version"},
			{"no record", Refused, "job id"},
			{"absent", Barred, "it had no record: if it waits for its first worker, none starts it"},
		} {
			outcomes, err := b.cancel(t.Context(), t, row.id)
			o := outcomes[row.id]
			if err != nil || o.Action != row.want || !strings.HasPrefix(o.Detail, row.detail) || (o.Err != nil) != (row.want == Refused) {
				t.Errorf("cancel of %s = %s, %q, %v, %v; want %s, %q", row.id, o.Action, o.Detail, o.Err, err, row.want, row.detail)
			}
		}
		if r := b.record(t, "runs"); r.Reason != "not needed" {
			t.Errorf("reason in the record = %q, want the operator's", r.Reason)
		}
		c := b.canceller(t)
		c.Reason = ""
		if err := c.Cancel(t.Context(), slices.Values([]string{"other"}), func(CancelOutcome) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if r := b.record(t, "other"); r.Reason != "cancelled by an operator" {
			t.Errorf("reason in the record = %q, want the default", r.Reason)
		}
	})
}

// TestCancelUnseen: with SeenOnly no id is barred, and the outcome counts the messages that were
// seen. Queues without names or without an answer show nothing.
func TestCancelUnseen(t *testing.T) {
	for name, row := range map[string]struct {
		hidden, refused, unnamed bool
		seenOnly                 bool
		want                     Action
		detail                   string
	}{
		"complete": {seenOnly: true, want: Unknown, detail: "there is no such job: it has no record, and no message of it waits on the queues"},
		"hidden": {hidden: true, seenOnly: true, want: Unknown, detail: "it has no record, and it is not among the 1 of 2 messages that the " +
			"service shows. There is no such job, or it waits behind them: spotctl cancel --bar keeps every worker from starting it"},
		"refused": {refused: true, seenOnly: true, want: Unknown, detail: "it has no record, and the queues could not be searched: "},
		"unnamed": {unnamed: true, seenOnly: true, want: Unknown, detail: "it has no record, and the queues could not be searched: no names. " +
			"There is no such job"},
		"refused, to bar": {refused: true, want: Barred, detail: "; the queues could not be searched: "},
		"unnamed, to bar": {unnamed: true, want: Barred, detail: "record is kept; the queues could not be searched: no names"},
		"hidden, to bar":  {hidden: true, want: Barred, detail: "cannot be used while this record is kept"},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			for id, delay := range map[string]time.Duration{"seen": 0, "hidden": time.Hour} {
				if delay > 0 && !row.hidden {
					continue
				}
				if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: id, Kind: "k"}, delay); err != nil {
					t.Fatal(err)
				}
			}
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if row.refused && c.Service == storage.QueueService {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
				}
				return storage.Fault{}
			})
			c := b.canceller(t)
			c.SeenOnly = row.seenOnly
			c.Queues = func(context.Context) ([]*queue.Queue, error) {
				if row.unnamed {
					return nil, errors.New("no names")
				}
				return append(b.Queue.All(), b.OnDemand), nil
			}
			var got CancelOutcome
			err := c.Cancel(t.Context(), slices.Values([]string{"typo"}), func(o CancelOutcome) error { got = o; return nil })
			if err != nil || got.Action != row.want || !strings.Contains(got.Detail, row.detail) {
				t.Errorf("%s: cancel = %s, %q, %v; want %s, %q", name, got.Action, got.Detail, err, row.want, row.detail)
			}
		})
	}
}

// TestCancelStops: an error of the report and the end of the context end the run, are returned,
// and leave the jobs that were not begun alone.
func TestCancelStops(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		ids := make([]string, cancelBatch+1)
		for i := range ids {
			ids[i] = fmt.Sprint("job-", i)
		}
		c := b.canceller(t)
		c.KnownOnly = true
		enough := errors.New("the pipe is closed")
		reports := 0
		err := c.Cancel(t.Context(), slices.Values(ids), func(CancelOutcome) error { reports++; return enough })
		if !errors.Is(err, enough) || reports > cancelParallel {
			t.Errorf("Cancel = %v after %d reports, want the error after at most %d", err, reports, cancelParallel)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reports = 0
		err = c.Cancel(ctx, slices.Values(ids[:3]), func(CancelOutcome) error { reports++; return nil })
		if !errors.Is(err, context.Canceled) || reports > 0 {
			t.Errorf("Cancel of an ended context = %v after %d reports, want its error and none", err, reports)
		}
	})
}
