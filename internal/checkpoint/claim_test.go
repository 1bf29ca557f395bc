package checkpoint

import (
	"maps"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// A short job makes one call for its record: the commit.
func TestFirstDeliveryCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
		if snapshot, err := c.Restore(t.Context()); snapshot != nil || err != nil {
			t.Errorf("Restore of a fresh claim = %v, %v, want nothing", snapshot, err)
		}
		if counts := b.Counts(); len(counts) != 0 || c.Exists() {
			t.Errorf("calls before the first write = %v, want none", counts)
		}
		if err := c.Commit(t.Context(), []byte("result")); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Counts(), map[string]int64{storage.OpPutBlob: 1}; !maps.Equal(got, want) {
			t.Errorf("calls of a commit = %v, want %v", got, want)
		}
		if got := b.body(t); got != "result" || !c.Exists() {
			t.Errorf("body = %q, want the result", got)
		}
	})
}

// The first write detects a record that another delivery has created.
func TestCreateMeetsARecord(t *testing.T) {
	kind, hash := ours.Kind, ours.PayloadHash
	for _, row := range []struct {
		name  string
		found Record
		want  Ruling
	}{
		{"done", Record{Status: Done, Kind: kind, PayloadHash: hash, MessageID: ours.MessageID}, Finish},
		{"poison", Record{Status: Poison, Kind: kind, PayloadHash: hash}, Finish},
		{"cancelled before any claim", Record{Status: Cancelled}, Finish},
		{"open", Record{Status: Open, Kind: kind, PayloadHash: hash, MessageID: ours.MessageID}, PutBack},
		{"running for this message", Record{Status: Running, Kind: kind, PayloadHash: hash, MessageID: ours.MessageID}, Fenced},
		{"running for another", Record{Status: Running, Kind: kind, PayloadHash: hash, MessageID: other.MessageID}, PutBack},
		{"other kind", Record{Status: Done, Kind: "other", PayloadHash: hash}, Mismatch},
		{"other payload", Record{Status: Running, Kind: kind, PayloadHash: "other", MessageID: ours.MessageID}, Mismatch},
		{"unknown status", Record{Status: "paused", Kind: kind, PayloadHash: hash}, Unreadable},
		{"newer version", Record{Status: Done, Kind: kind, PayloadHash: hash, unknown: map[string]string{"failures": "-1"}}, Unreadable},
	} {
		t.Run(row.name, func(t *testing.T) {
			for what, write := range ownersWrites() {
				inBubble(t, func(t *testing.T, b *rig) {
					before := b.seed(t, row.found, "theirs")
					c := b.store.Fresh(ours, "worker-1")
					conflict := conflictIn(write(t.Context(), c))
					if conflict == nil || conflict.Ruling != row.want || conflict.Record.ETag != before.ETag {
						t.Errorf("%s = %v, want a conflict with the record: %s", what, conflict, row.want)
					}
					if after := b.read(t); after.ETag != before.ETag || b.body(t) != "theirs" {
						t.Errorf("%s changed the record to %+v", what, after)
					}
				})
			}
		})
	}
}

// A create can fail because of a staged block, or of a write in flight, although
// there is no record. It is repeated.
func TestCreateMeetsAStagedBlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		refusals := 3
		b.OnCall(func(c storage.Call) storage.Fault {
			if (c.Operation == storage.OpPutBlob || c.Operation == storage.OpPutBlockList) && refusals > 0 {
				refusals--
				return storage.Fault{Refuse: &storage.Error{Status: 409, Code: "BlobAlreadyExists"}}
			}
			return storage.Fault{}
		})
		if err := b.store.Fresh(ours, "worker-1").Commit(t.Context(), nil); err != nil {
			t.Errorf("Commit = %v, want no error", err)
		}
		refusals = 1000
		begun := time.Now()
		other := ours
		other.ID = "job-2"
		err := b.store.Fresh(other, "worker-1").Commit(t.Context(), nil)
		if err == nil || conflictIn(err) != nil || time.Since(begun) > time.Minute {
			t.Errorf("Commit that is always refused = %v after %s, want an error within a minute", err, time.Since(begun))
		}
	})
}

// A refusal that no read can resolve is an error at once.
func TestWriteRefused(t *testing.T) {
	for _, refusal := range []*storage.Error{
		{Status: 403, Code: "AuthorizationPermissionMismatch"},
		{Status: 404, Code: "ContainerNotFound"},
		{Status: 400, Code: "InvalidMetadata"},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			c := b.claimed(t)
			b.ResetCounts()
			b.cause(trouble{writes: 1, fault: storage.Fault{Refuse: refusal}})
			if err := c.Save(t.Context(), Snapshot{State: []byte("state 2")}); err == nil || conflictIn(err) != nil {
				t.Errorf("Save refused with %s = %v, want an error that is no conflict", refusal.Code, err)
			}
			if got, want := b.Counts(), map[string]int64{storage.OpPutBlob: 1}; !maps.Equal(got, want) {
				t.Errorf("calls = %v, want %v", got, want)
			}
			if err := c.Save(t.Context(), Snapshot{State: []byte("state 2")}); err != nil {
				t.Errorf("a second Save = %v, want no error", err)
			}
		})
	}
}

// A record that was removed while it had an owner is created again, with the state
// of the next write.
func TestWriteAfterRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		b.remove(t)
		if err := c.Touch(t.Context(), Snapshot{Fraction: 0.3}); err != nil {
			t.Fatal(err)
		}
		if r := b.read(t); r.HasState() || r.Status != Running || r.Fraction != 0.3 {
			t.Errorf("record created again = %+v, want it running, without the state that is gone", r)
		}
		b.remove(t)
		if err := c.Save(t.Context(), Snapshot{State: []byte("state 1")}); err != nil {
			t.Fatal(err)
		}
		if r := b.read(t); !r.HasState() || b.body(t) != "state 1" {
			t.Errorf("record created again = %+v with %q, want the state", r, b.body(t))
		}
	})
}

func (b *rig) remove(t *testing.T) {
	t.Helper()
	if _, err := b.store.blob(ours.ID).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Keys of a newer version are kept by every write of this one.
func TestUnknownKeysSurvive(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Open, MessageID: ours.MessageID, unknown: map[string]string{"priority": "7"}}, "")
		c := b.acquire(t, ours, "worker-1")
		for _, err := range []error{
			c.Touch(t.Context(), Snapshot{}), c.Save(t.Context(), Snapshot{State: []byte("s")}), c.Commit(t.Context(), nil),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if r := b.read(t); r.unknown["priority"] != "7" {
			t.Errorf("unknown keys after a take, a touch, a save and a commit = %v, want priority 7", r.unknown)
		}
	})
}

// A save of a state that is already recorded sends no body.
func TestSaveSendsAStateOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		b.ResetCounts()
		same := Snapshot{State: []byte("state 1"), Version: 2, Fraction: 0.5}
		if err := c.Save(t.Context(), same); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Counts(), map[string]int64{storage.OpSetBlobMetadata: 1}; !maps.Equal(got, want) {
			t.Errorf("calls = %v, want %v", got, want)
		}
		if r := b.read(t); r.StateVersion != 2 || r.Fraction != 0.5 {
			t.Errorf("record = %+v, want the version and fraction of the last report", r)
		}
	})
}

// A claim that ended without release, failure or progress is an unclean exit. The
// next claim by the same message counts it, as charged to the job or early, by the
// claim's last write.
func TestUncleanExits(t *testing.T) {
	type exits struct{ charged, early int }
	steady := ours
	steady.Steady = true
	for name, row := range map[string]struct {
		d    Delivery // of the claim
		do   func(t *testing.T, c *Claim) error
		want exits // that the next claim of the same message counts
	}{
		"only claimed, by a steady worker": {steady, func(*testing.T, *Claim) error { return nil }, exits{3, 1}},
		"only claimed, by a new worker":    {ours, func(*testing.T, *Claim) error { return nil }, exits{2, 2}},
		"touched": {steady, func(t *testing.T, c *Claim) error { return c.Touch(t.Context(), Snapshot{Fraction: 0.9}) },
			exits{3, 1}},
		"saved the same state": {steady, func(t *testing.T, c *Claim) error { return c.Save(t.Context(), Snapshot{State: []byte("begun")}) },
			exits{3, 1}},
		"touched, charged from then on": {ours, func(t *testing.T, c *Claim) error {
			c.SetFacts(func(f Facts) Facts { f.Charge = true; return f })
			return c.Touch(t.Context(), Snapshot{})
		}, exits{3, 1}},
		"touched, not charged from then on": {steady, func(t *testing.T, c *Claim) error {
			c.SetFacts(func(f Facts) Facts { f.Charge = false; return f })
			return c.Touch(t.Context(), Snapshot{})
		}, exits{2, 2}},
		"progressed": {steady, func(t *testing.T, c *Claim) error { return c.Save(t.Context(), Snapshot{State: []byte("next")}) },
			exits{}},
		"released": {steady, func(t *testing.T, c *Claim) error { return c.Release(t.Context(), Snapshot{}) }, exits{}},
		"failed":   {steady, func(t *testing.T, c *Claim) error { return c.Fail(t.Context(), Snapshot{}, "no") }, exits{}},
		"progressed, then released": {steady, func(t *testing.T, c *Claim) error {
			return c.Release(t.Context(),
				Snapshot{State: []byte("next")})
		}, exits{}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.seed(t, Record{
					Status: Running, MessageID: ours.MessageID, Generation: 1, ChargedExits: 1, EarlyExits: 1, Charge: true,
					StateHash: hashOf([]byte("begun")), StateSize: 5,
				}, "begun")
				c := b.acquire(t, row.d, "worker-1")
				if r := c.Record(); r.ChargedExits != 2 || r.EarlyExits != 1 || r.UncleanExits() != 3 {
					t.Fatalf("at the claim %d silent and %d early ends, want 2 and 1", r.ChargedExits, r.EarlyExits)
				}
				if err := row.do(t, c); err != nil {
					t.Fatal(err)
				}
				found := b.read(t)
				if found.Status != Running && found.Charge {
					t.Errorf("a record that is %s says that an exit would be charged", found.Status)
				}
				charged, early := UncleanExits(found, ours)
				if got := (exits{charged, early}); got != row.want {
					t.Errorf("unclean exits that the next claim counts = %v, want %v", got, row.want)
				}
				if got := b.acquire(t, ours, "worker-2").Record(); got.ChargedExits != row.want.charged || got.EarlyExits != row.want.early ||
					got.Generation != 3 {
					t.Errorf("the next claim = %d silent and %d early ends, generation %d, want %v and 3", got.ChargedExits, got.EarlyExits,
						got.Generation, row.want)
				}
			})
		})
	}
}

// A claim does not count the unclean exits of another message's claims.
func TestUncleanExitsOfAnotherMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Running, MessageID: other.MessageID, ChargedExits: 2}, "")
		time.Sleep(time.Hour)
		if got := b.acquire(t, ours, "worker-1").Record(); got.ChargedExits != 2 || got.EarlyExits != 0 || got.MessageID != ours.MessageID {
			t.Errorf("taken over with %d charged and %d early exits for message %s, want 2 and 0 for %s", got.ChargedExits, got.EarlyExits,
				got.MessageID, ours.MessageID)
		}
	})
}

// Failures in a row without progress are counted, and FailuresAfter predicts them.
func TestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		nothing := Snapshot{}
		for attempt, step := range []struct {
			saved  string // by a save before the failure
			failed Snapshot
			want   int
		}{
			{"", nothing, 1},
			{"", nothing, 2},
			{"", Snapshot{State: []byte("a")}, 1}, // progress and failure in one write
			{"", Snapshot{State: []byte("a")}, 2}, // the state that the claim began with
			{"b", nothing, 1},
			{"b", nothing, 2},
			{"c", Snapshot{State: []byte("c")}, 1},
		} {
			c := b.store.Fresh(ours, "w")
			if attempt > 0 {
				c = b.acquire(t, ours, "w")
			}
			if step.saved != "" {
				if err := c.Save(t.Context(), Snapshot{State: []byte(step.saved)}); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.FailuresAfter(step.failed, false); got != step.want {
				t.Errorf("attempt %d: FailuresAfter = %d, want %d", attempt+1, got, step.want)
			}
			if err := c.Fail(t.Context(), step.failed, "no"); err != nil {
				t.Fatal(err)
			}
			if got := b.read(t).Failures; got != step.want {
				t.Errorf("attempt %d: failures = %d, want %d", attempt+1, got, step.want)
			}
		}
	})
}

// A claim that has ended writes nothing else, and never opens a job again.
func TestNoWriteAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		if err := c.Release(t.Context(), Snapshot{}); err != nil {
			t.Fatal(err)
		}
		if conflict := conflictIn(c.Save(t.Context(), Snapshot{State: []byte("late")})); conflict == nil || conflict.Ruling != PutBack {
			t.Errorf("Save after a release = %v, want to put back", conflict)
		}
		c = b.acquire(t, ours, "w")
		must(t, c.Save(t.Context(), Snapshot{State: []byte("s"), Fraction: 0.5, Text: "1 of 2"}))
		if err := c.Commit(t.Context(), []byte("result")); err != nil {
			t.Fatal(err)
		}
		if conflict := conflictIn(c.Fail(t.Context(), Snapshot{}, "late")); conflict == nil || conflict.Ruling != Finish {
			t.Errorf("Fail after a commit = %v, want to finish", conflict)
		}
		if r := b.read(t); r.Status != Done || r.Text != "" || b.body(t) != "result" {
			t.Errorf("record = %+v with %q, want it done", r, b.body(t))
		}
	})
}

// TestBreaks: breaks count until the fraction at a break rises above all earlier
// ones, to the four digits that a record keeps.
func TestBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i, row := range []struct {
			fraction float64
			breaks   int
			peak     float64
		}{
			{0, 1, 0}, {0, 2, 0}, {0.00004, 3, 0}, {0.3, 0, 0.3}, {0.1, 1, 0.3}, {0.2, 2, 0.3}, {0.3, 3, 0.3}, {0.30004, 4, 0.3},
			{0.3001, 0, 0.3001}, {1, 0, 1}, {2, 1, 1},
		} {
			c := b.store.Fresh(ours, "worker-1")
			if i > 0 {
				c = b.acquire(t, ours, "worker-1")
			}
			s := Snapshot{State: []byte{byte(i)}, Fraction: row.fraction}
			if got := c.After(s, false).Breaks; got != row.breaks {
				t.Errorf("break %d: After = %d breaks, want %d", i, got, row.breaks)
			}
			if err := c.Break(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if r := b.read(t); r.Breaks != row.breaks || r.Peak != row.peak || r.Interruptions != i+1 {
				t.Errorf("break %d at %v: %d breaks, peak %v, %d interruptions, want %d, %v, %d", i, row.fraction, r.Breaks, r.Peak, r.Interruptions,
					row.breaks, row.peak, i+1)
			}
		}
	})
}

// TestRepeatedFailures: a repeat of the last failure leaves the count, and any other failure
// raises it, for any machine in the record.
func TestRepeatedFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		claim := func(i int) *Claim {
			if i == 0 {
				return b.store.Fresh(ours, "w")
			}
			return b.acquire(t, ours, "w")
		}
		for i, step := range []struct {
			machine string
			repeat  bool
			want    int
		}{{"vm_0", true, 1}, {"vm_0", true, 1}, {"vm_0", false, 2}, {"vm_1", false, 3}, {"vm_1", true, 3}} {
			c := claim(i)
			c.SetFacts(func(f Facts) Facts { f.Failure = Failure{step.machine, step.repeat}; return f })
			if got := c.FailuresAfter(Snapshot{}, step.repeat); got != step.want {
				t.Errorf("step %d: FailuresAfter = %d, want %d", i, got, step.want)
			}
			if err := c.Fail(t.Context(), Snapshot{}, "no"); err != nil {
				t.Fatal(err)
			}
			if r := b.read(t); r.Failures != step.want || r.FailedBy != step.machine {
				t.Errorf("step %d: record has %d failures, by %q, want %d by %q", i, r.Failures, r.FailedBy, step.want, step.machine)
			}
		}
		c := b.acquire(t, ours, "w")
		if got := c.FailuresAfter(Snapshot{State: []byte("further")}, true); got != 1 {
			t.Errorf("FailuresAfter progress = %d, want 1", got)
		}
	})
}

// Every write records the time of the job's handlers, also of earlier deliveries. The
// successor does not know a claim's work after its last write.
func TestRunTimeAddsUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		first := b.store.Fresh(ours, "worker-1")
		if err := first.Touch(t.Context(), Snapshot{}); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t).RunTime; got != 0 {
			t.Errorf("paid before the handler was called = %s, want 0", got)
		}
		watch := stopwatch()
		first.SetFacts(func(f Facts) Facts { f.RunTime = watch(); return f })
		time.Sleep(90 * time.Second)
		if err := first.Save(t.Context(), Snapshot{State: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t).RunTime; got != 90*time.Second {
			t.Errorf("paid after 90 s = %s, want that", got)
		}
		time.Sleep(time.Minute) // and then it dies without a word
		if got := first.EarlierRunTime() + watch(); got != 150*time.Second {
			t.Errorf("Paid of the first claim = %s, want 2m30s", got)
		}

		second, err := b.store.Acquire(t.Context(), ours, b.read(t), "worker-2")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // it restores the state, which is not the handler's time
		watch = stopwatch()
		second.SetFacts(func(f Facts) Facts { f.RunTime = watch(); return f })
		time.Sleep(10*time.Second + 300*time.Microsecond)
		if err := second.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := b.read(t).RunTime, 100*time.Second; got != want {
			t.Errorf("run time at the end = %s, want %s: recorded by the first, and the second's", got, want)
		}
	})
}

// TestAcquireWithoutState: a job whose last delivery left no state starts over, so its record
// does not show the progress of that delivery. A job with a state keeps its progress.
func TestAcquireWithoutState(t *testing.T) {
	for name, row := range map[string]struct {
		last     Snapshot
		fraction float64
		text     string
	}{
		"no state, fraction":   {Snapshot{Fraction: 0.82, Text: "epoch 82"}, 0, StartsOver},
		"no state, text alone": {Snapshot{Text: "epoch 82"}, 0, StartsOver},
		"no state, no report":  {Snapshot{}, 0, ""},
		"a state":              {Snapshot{State: []byte("82"), Fraction: 0.82, Text: "epoch 82"}, 0.82, "epoch 82"},
		"an empty state":       {Snapshot{State: []byte{}, Fraction: 0.82}, 0.82, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				first := b.store.Fresh(ours, "worker-1")
				if err := first.Touch(t.Context(), Snapshot{}); err != nil {
					t.Fatal(err)
				}
				if err := first.Release(t.Context(), row.last); err != nil {
					t.Fatal(err)
				}
				if r := b.read(t); r.Fraction != row.last.Fraction || r.Text != row.last.Text {
					t.Errorf("released at %g %q, want the last report", r.Fraction, r.Text)
				}
				second, err := b.store.Acquire(t.Context(), ours, b.read(t), "worker-2")
				if err != nil {
					t.Fatal(err)
				}
				if r := b.read(t); r.Fraction != row.fraction || r.Text != row.text {
					t.Errorf("claimed again: %g %q, want %g %q", r.Fraction, r.Text, row.fraction, row.text)
				}
				if err := second.Touch(t.Context(), Snapshot{Fraction: 0.1, Text: "epoch 10"}); err != nil {
					t.Fatal(err)
				}
				if r := b.read(t); r.Fraction != 0.1 || r.Text != "epoch 10" {
					t.Errorf("after a report: %g %q, want it", r.Fraction, r.Text)
				}
			})
		})
	}
}

func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
