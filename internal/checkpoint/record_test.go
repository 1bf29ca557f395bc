package checkpoint

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestNumbersAreBounded: numbers and times are read up to their bounds.
func TestNumbersAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		given    map[string]string
		readable bool
	}{
		"version 0":                       {map[string]string{"v": "0"}, false},
		"version 2":                       {map[string]string{"v": "2"}, false},
		"the largest count":               {map[string]string{"failures": "9007199254740992"}, true},
		"a larger one":                    {map[string]string{"failures": "9007199254740993"}, false},
		"no count":                        {map[string]string{"failures": "0"}, true},
		"no time":                         {map[string]string{"paid": "0"}, true},
		"a negative time":                 {map[string]string{"paid": "-1"}, false},
		"the longest time":                {map[string]string{"paid": "4611686018427"}, true},
		"a longer one":                    {map[string]string{"paid": "4611686018428"}, false},
		"the first year":                  {map[string]string{"createdat": "0000-01-01T00:00:00Z"}, true},
		"the year before in UTC":          {map[string]string{"createdat": "0000-01-01T00:00:00+01:00"}, false},
		"the year after the last, in UTC": {map[string]string{"createdat": "9999-12-31T23:59:59-01:00"}, false},
	} {
		m := map[string]string{"v": "1", "status": "open"}
		maps.Copy(m, row.given)
		r, err := parse("j", pointers(m))
		if (err == nil) != row.readable || row.readable != (r.Version == Version) || err != nil && !errors.Is(err, errUnreadable) {
			t.Errorf("%s: read as version %d, %v, want it readable: %t", name, r.Version, err, row.readable)
		}
	}
	r, err := parse("j", pointers(map[string]string{"v": "1", "status": "open", "paid": "1500"}))
	if err != nil || r.RunTime != 1500*time.Millisecond || *r.metadata()["paid"] != "1500" {
		t.Errorf("a run time of 1500 ms is read as %s, %v, and written as %v", r.RunTime, err, r.metadata()["paid"])
	}
}

// TestListSkipsWhatIsNoRecord: blobs with other names are named to the caller, and records have the
// service's time of the listing.
func TestListSkipsWhatIsNoRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Open}, "")
		foreign := []string{"000/" + ours.ID, "top", jobid.Path(ours.ID) + "/more", jobid.Path(".bad")}
		for _, name := range foreign {
			if _, err := b.store.container.NewBlockBlobClient(name).UploadBuffer(t.Context(), nil, &blockblob.UploadBufferOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var skipped, listed []string
		for r, err := range b.store.ListAnd(t.Context(), "", func(blob string) { skipped = append(skipped, blob) }) {
			if err != nil {
				t.Fatal(err)
			}
			if listed = append(listed, r.ID); r.ReadAt.Sub(r.ModifiedAt) != time.Minute {
				t.Errorf("record was read %s after its write, want a minute", r.ReadAt.Sub(r.ModifiedAt))
			}
		}
		want := map[string]bool{}
		for _, name := range foreign {
			want[name] = true
		}
		got := map[string]bool{}
		for _, name := range skipped {
			got[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" || !cmp.Equal(listed, []string{ours.ID}) {
			t.Errorf("listed %v; skipped (-want +got)\n%s", listed, diff)
		}
	})
}

// TestRemove: only the record of a job that is over is removed, and only as it was read.
func TestRemove(t *testing.T) {
	for _, status := range []Status{Open, Running, Poison, Done, Cancelled} {
		inBubble(t, func(t *testing.T, b *rig) {
			r := b.seed(t, Record{Status: status}, "")
			isOver := status == Done || status == Cancelled
			unreadable := r
			unreadable.Version = 0
			if err := b.store.Remove(t.Context(), unreadable); err == nil || b.Counts()[storage.OpDeleteBlob] != 0 {
				t.Errorf("%s: Remove of a record that this version cannot read = %v, want a refusal", status, err)
			}
			if !isOver {
				if err := b.store.Remove(t.Context(), r); err == nil || b.Counts()[storage.OpDeleteBlob] != 0 {
					t.Errorf("%s: Remove = %v, want a refusal without a call", status, err)
				}
				return
			}
			changed := b.writeAsOperator(t, func(*Record) {})
			if err := b.store.Remove(t.Context(), r); !errors.Is(err, ErrChanged) || len(b.Blobs(recordsName)) != 1 {
				t.Errorf("%s: Remove of a changed record = %v, want ErrChanged", status, err)
			}
			b.OnCall(func(storage.Call) storage.Fault {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
			})
			if err := b.store.Remove(t.Context(), changed); err == nil || errors.Is(err, ErrChanged) {
				t.Errorf("%s: Remove without access = %v, want the refusal", status, err)
			}
			b.OnCall(nil)
			if err := b.store.Remove(t.Context(), changed); err != nil || len(b.Blobs(recordsName)) != 0 {
				t.Errorf("%s: Remove = %v, %d records left", status, err, len(b.Blobs(recordsName)))
			}
			if err := b.store.Remove(t.Context(), changed); !errors.Is(err, ErrChanged) {
				t.Errorf("%s: Remove of a record that is gone = %v, want ErrChanged", status, err)
			}
		})
	}
}
