package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestLookup(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if r, ruling, err := b.store.Lookup(t.Context(), ours); ruling != Create || err != nil || r.ID != "" {
			t.Errorf("Look at nothing = %+v, %s, %v, want create", r, ruling, err)
		}
		b.seed(t, Record{Status: Running, MessageID: other.MessageID}, "")
		if _, ruling, err := b.store.Lookup(t.Context(), ours); ruling != PutBack || err != nil {
			t.Errorf("Look at another's = %s, %v, want to put back", ruling, err)
		}
		time.Sleep(time.Hour) // by the service's own clock
		if _, ruling, err := b.store.Lookup(t.Context(), ours); ruling != Acquire || err != nil {
			t.Errorf("Look an hour later = %s, %v, want to take over", ruling, err)
		}
		b.cause(trouble{reads: tries})
		if _, ruling, err := b.store.Lookup(t.Context(), ours); err == nil || ruling != 0 {
			t.Errorf("Look without a network = %s, %v, want an error and no ruling", ruling, err)
		}
	})
}

func TestReadAndResult(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if _, err := b.store.Read(t.Context(), ours.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("Read of nothing = %v, want ErrNotFound", err)
		}
		if _, err := b.store.Result(t.Context(), ours.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("Result of nothing = %v, want ErrNotFound", err)
		}
		c := b.claimed(t)
		if got, err := b.store.Result(t.Context(), ours.ID); err == nil {
			t.Errorf("Result of a running job = %q, want an error: its body is a state", got)
		}
		if err := c.Commit(t.Context(), []byte("result\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := b.store.Result(t.Context(), ours.ID); string(got) != "result\n" || err != nil {
			t.Errorf("Result = %q, %v, want result", got, err)
		}
		if r := b.read(t); r.ReadAt.IsZero() || r.ModifiedAt.IsZero() || r.Size != 7 {
			t.Errorf("Read = %+v, want the service's times and the size of the body", r)
		}
		if got, want := b.Blobs(recordsName)[0].Name, jobid.Path(ours.ID); got != want {
			t.Errorf("the record's blob is %s, want %s", got, want)
		}
	})
}

// A listing takes one call per 5,000 records, and keeps those it cannot read.
func TestList(t *testing.T) {
	const records, page = 53, 50
	inBubble(t, func(t *testing.T, b *rig) {
		b.SetFullPages()
		for i := range records {
			r := Record{ID: fmt.Sprintf("a-%04d", i), Status: Done, Kind: "k", Fraction: 1}
			if i == 7 {
				r.ID, r.unknown = "b-0007", map[string]string{"failures": "-1"}
			}
			if _, err := b.store.put(t.Context(), &r, "", content{data: []byte("body")}); err != nil {
				t.Fatal(err)
			}
		}
		b.ResetCounts()
		b.LimitBlobPages(page)
		seen := map[string]bool{}
		for r, err := range b.store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if seen[r.ID] || r.ETag == "" || r.Size != 4 || r.ModifiedAt.IsZero() {
				t.Fatalf("listed %+v, want each record once with what the service knows", r)
			}
			if readable := r.Version == Version && r.Status == Done && r.Fraction == 1; readable == (r.ID == "b-0007") {
				t.Errorf("listed %+v, want all but b-0007 readable", r)
			}
			seen[r.ID] = true
		}
		if calls := b.Counts()[storage.OpListBlobs]; len(seen) != records || calls != 2 {
			t.Errorf("listed %d records in %d calls, want %d in 2", len(seen), calls, records)
		}
		b.ResetCounts()
		for _, err := range b.store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if calls := b.Counts()[storage.OpListBlobs]; calls != 1 {
			t.Errorf("a listing that is left early took %d calls, want 1", calls)
		}
	})
}

func TestListByPrefix(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 12 {
			r := Record{ID: fmt.Sprintf("a-%d", i), Status: Open}
			if _, err := b.store.put(t.Context(), &r, "", content{}); err != nil {
				t.Fatal(err)
			}
		}
		for prefix, want := range map[string]int{"": 12, "a-": 12, "a-1": 3, "a-11": 1, "b": 0} {
			got := 0
			for r, err := range b.store.List(t.Context(), prefix) {
				if err != nil || !strings.HasPrefix(r.ID, prefix) {
					t.Fatalf("listed %q, %v under prefix %q", r.ID, err, prefix)
				}
				got++
			}
			if got != want {
				t.Errorf("prefix %q lists %d records, want %d", prefix, got, want)
			}
		}
	})
}

func TestListAndCheckInTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if err := b.store.Check(t.Context()); err != nil {
			t.Errorf("Check = %v, want no error", err)
		}
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		if err := b.store.Check(t.Context()); err == nil {
			t.Error("Check without a network = <nil>, want an error")
		}
		yields := 0
		for _, err := range b.store.List(t.Context(), "") {
			if yields++; err == nil || yields > 1 {
				t.Errorf("List without a network yields %v as number %d, want one error", err, yields)
			}
		}
		if yields != 1 {
			t.Errorf("List without a network yields %d times, want one error", yields)
		}
	})
}
