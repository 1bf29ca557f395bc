package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// begin acquires the record of a job that was put in a group, as its worker does.
func (b *rig) begin(t *testing.T, id string) *checkpoint.Claim {
	t.Helper()
	found, err := b.stores.Records.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id}
	claim, err := b.stores.Records.Acquire(t.Context(), d, found, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestGroup: a group has its jobs from the put on, and a name that no job has is an error
// with the nearest one.
func TestGroup(t *testing.T) {
	b := setup(t)
	b.server.SetFullPages()
	for _, id := range []string{"a", "b"} {
		due := time.Now().Add(time.Minute)
		if _, err := b.Put(t.Context(), Spec{ID: id, Kind: "k", Group: "night", Deadline: due, Estimate: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Put(t.Context(), Spec{Kind: "k", Group: "day"}); err != nil {
		t.Fatal(err)
	}
	b.seed(t, "alone", StatusRunning)
	b.server.ResetCounts()
	jobs, err := b.Group(t.Context(), "night")
	ids := []string{}
	for _, j := range jobs {
		ids = append(ids, j.ID)
		if j.Group != "night" || j.Status != StatusOpen || j.Deliveries != 0 {
			t.Errorf("job = %+v, want it open and not claimed", j)
		}
		if risk, why := j.Risk(); risk != RiskNone {
			t.Errorf("risk of a job that was never claimed = %s: %s, want none", risk, why)
		}
	}
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("Group = %v, %v, want a and b", ids, err)
	}
	if got, want := b.server.Counts(), map[string]int64{storage.OpListBlobs: 1}; !cmp.Equal(got, want) {
		t.Errorf("Group took the calls %v, want %v", got, want)
	}
	_, err = b.Group(t.Context(), "nigth")
	if none, ok := errors.AsType[*NoGroupError](err); !ok || none.Nearest != "night" || !errors.Is(err, ErrNoGroup) {
		t.Errorf("Group of a misspelt name = %v, want a NoGroupError with the nearest name", err)
	}
	if _, err := b.Put(t.Context(), Spec{ID: "a", Kind: "k", Group: "day"}); !errors.Is(err, ErrOtherGroup) {
		t.Errorf("Put in another group = %v, want ErrOtherGroup", err)
	}
	if _, err := b.Put(t.Context(), Spec{ID: "alone", Kind: "k", Group: "day"}); !errors.Is(err, ErrOtherGroup) {
		t.Errorf("Put of a job that is in no group = %v, want ErrOtherGroup", err)
	}
}

// TestWaitGroup: the wait has jobs that no worker had claimed, and jobs that are put in the
// group meanwhile.
func TestWaitGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for _, id := range []string{"a", "b"} {
			if _, err := b.Put(t.Context(), Spec{ID: id, Kind: "k", Group: "night"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Put(t.Context(), Spec{ID: "other", Kind: "k", Group: "day"}); err != nil {
			t.Fatal(err)
		}
		go func() {
			ctx := context.Background()
			time.Sleep(time.Minute)
			err := b.begin(t, "a").Commit(ctx, []byte("1"))
			time.Sleep(time.Minute)
			if _, putErr := b.Put(ctx, Spec{ID: "late", Kind: "k", Group: "night"}); putErr != nil {
				t.Error(putErr)
			}
			err = errors.Join(err, b.begin(t, "b").Poison(ctx, checkpoint.Snapshot{}, "no"))
			time.Sleep(time.Minute)
			if err = errors.Join(err, b.begin(t, "late").Commit(ctx, []byte("3"))); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		var got []string
		for outcome, err := range b.WaitGroup(t.Context(), "night", WaitOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, outcome.Job.ID+" "+string(outcome.Job.Status))
		}
		if want := []string{"a done", "b poison", "late done"}; !slices.Equal(got, want) {
			t.Errorf("outcomes = %q, want %q", got, want)
		}
		if took := time.Since(began); took < 3*time.Minute || took > 3*time.Minute+15*time.Second {
			t.Errorf("the wait took %s, want about 3m", took)
		}
		for _, err := range b.WaitGroup(t.Context(), "nobody", WaitOptions{}) {
			if !errors.Is(err, ErrNoGroup) {
				t.Errorf("WaitGroup of nobody = %v, want ErrNoGroup", err)
			}
		}
	})
}

// TestGroupErrors: a group whose records cannot be listed is not called empty, and neither is a
// group of a name that is not valid.
func TestGroupErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		if _, err := b.Group(t.Context(), "not/valid"); err == nil || errors.Is(err, ErrNoGroup) {
			t.Errorf("Group of an invalid name = %v, want why it is invalid", err)
		}
		if _, err := b.Put(t.Context(), Spec{ID: "a", Kind: "k", Group: "night"}); err != nil {
			t.Fatal(err)
		}
		if jobs, err := b.Group(t.Context(), "night"); err != nil || len(jobs) != 1 {
			t.Errorf("Group = %+v, %v, want its only job", jobs, err)
		}
		for name, row := range map[string]struct {
			group string
			deny  string
			want  error
		}{
			"no such group": {"nobody", "", ErrNoGroup},
			"denied":        {"night", storage.OpListBlobs, ErrDenied},
			"wait denied":   {"night", storage.OpGetBlobProperties, ErrDenied},
		} {
			refuse(b.server, row.deny)
			var last error
			n := 0
			for _, err := range b.WaitGroup(t.Context(), row.group, WaitOptions{}) {
				last = err
				n++
			}
			if n != 1 || !errors.Is(last, row.want) {
				t.Errorf("%s: WaitGroup = %v after %d outcomes, want %v alone", name, last, n, row.want)
			}
			if _, err := b.Group(t.Context(), row.group); row.deny != storage.OpGetBlobProperties && !errors.Is(err, row.want) {
				t.Errorf("%s: Group = %v, want %v", name, err, row.want)
			}
		}
	})
}

// TestWaitGroupEnds: the wait ends without an error if the records of its jobs were removed, and
// with one if the records cannot be listed again.
func TestWaitGroupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for group, want := range map[string]error{"removed": nil, "denied": ErrDenied} {
			if _, err := b.Put(t.Context(), Spec{ID: group, Kind: "k", Group: group}); err != nil {
				t.Fatal(err)
			}
			if err := b.begin(t, group).Commit(t.Context(), []byte("1")); err != nil {
				t.Fatal(err)
			}
			n := 0
			var last error
			for _, err := range b.WaitGroup(t.Context(), group, WaitOptions{}) {
				n, last = n+1, err
				if group == "denied" {
					refuse(b.server, storage.OpListBlobs)
					continue
				}
				records := b.stores.Account.Container(b.stores.Names.Records)
				if _, err := records.NewBlobClient(pathOf(group)).Delete(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
			if wanted := map[bool]int{true: 2, false: 1}[want != nil]; n != wanted || !errors.Is(last, want) {
				t.Errorf("WaitGroup of %s = %v after %d, want %v after %d", group, last, n, want, wanted)
			}
			b.server.OnCall(nil)
		}
	})
}
