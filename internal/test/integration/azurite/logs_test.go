//go:build integration

package azurite_test

import (
	"fmt"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestLogsAndRemoval: logs of two owners are merged in their blob, bytes survive in the
// record's metadata, and a record and a log are removed only as they were listed.
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
	first, second := joblog.New(1, "vm-1", joblog.MinSize, ""), joblog.New(2, "vm-2", joblog.MinSize, "")
	firstWriter := s.Logs.Writer("a", created, first, true)
	for n := range 30 {
		first.Add(joblog.Stdout, fmt.Appendf(nil, "line %d of 100%%, \x00\xff+é\r ~", n))
	}
	if err := firstWriter.Write(ctx); err != nil {
		t.Fatal(err)
	}
	second.Add(joblog.Stderr, []byte("resumed"))
	if err := s.Logs.Writer("a", created, second, false).Write(ctx); err != nil {
		t.Fatal(err)
	}
	first.Add(joblog.Stdout, []byte("stale"))
	if err := firstWriter.Write(ctx); err == nil {
		t.Error("the first owner wrote over the section of the second")
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
			t.Errorf("remove a log as it was listed = %t, %v", removed, err)
		}
		if removed, err := s.Logs.Remove(ctx, l); err != nil || removed {
			t.Errorf("remove it again = %t, %v, want false", removed, err)
		}
	}
}
