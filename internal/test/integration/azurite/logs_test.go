//go:build integration

package azurite_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestLogsAndRemoval: logs of two owners are read together, bytes survive in the record's
// metadata, a record is removed only as it was listed, and a log is removed once.
func TestLogsAndRemoval(t *testing.T) {
	ctx := t.Context()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: azurite.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor("logs", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{names.Records, names.Payloads} {
		if _, err := account.Container(name).Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := deployment.StoresOf(account, names)
	d := checkpoint.Delivery{ID: "a", Kind: "k", MessageID: "m"}
	claim, err := s.Records.Create(ctx, d, "vm-1")
	if err != nil {
		t.Fatal(err)
	}
	created := claim.Record().CreatedAt
	keeper := joblog.NewKeeper(s.Logs, joblog.MinSize)
	first, second := keeper.Open("a", created, 1, "vm-1", ""), keeper.Open("a", created, 2, "vm-2", "")
	second.LeaveRecord()
	for n := range 30 {
		first.Add(joblog.Stdout, fmt.Appendf(nil, "line %d of 100%%, \x00\xff+é\r ~", n))
	}
	second.Add(joblog.Stderr, []byte("resumed"))
	if err := errors.Join(second.WriteLast(ctx, time.Minute), first.WriteLast(ctx, time.Minute)); err != nil {
		t.Fatal(err)
	}
	found, err := s.Logs.Read(ctx, "a", created)
	if err != nil || len(found.Sections) != 2 || found.Sections[0].Count != 30 || found.Sections[1].Count != 1 {
		t.Fatalf("log = %+v, %v, want 30 lines and one", found, err)
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Log = first.Tail(); return f })
	if err := claim.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for r, err := range s.Records.List(ctx, "") {
		if err != nil || r.Log != first.Tail() {
			t.Fatalf("log in the record = %q, %v, want %q", r.Log, err, first.Tail())
		}
		stale := r
		stale.ETag = `"0x8DEAD"`
		if err := s.Records.Remove(ctx, stale); err == nil {
			t.Error("a record that was written since is removed")
		}
		if err := s.Records.Remove(ctx, r); err != nil {
			t.Errorf("remove a record as it was listed: %v", err)
		}
	}
	for l, err := range s.Logs.List(ctx) {
		if err != nil || l.ID != "a" || l.Size == 0 {
			t.Fatalf("listed log = %+v, %v", l, err)
		}
		if removed, err := s.Logs.Remove(ctx, l); err != nil || !removed {
			t.Errorf("remove a log = %t, %v", removed, err)
		}
		if removed, err := s.Logs.Remove(ctx, l); err != nil || removed {
			t.Errorf("remove it again = %t, %v, want false", removed, err)
		}
	}
}
