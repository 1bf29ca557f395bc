package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/formats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden is a document as another program may have written it: two fields are unknown.
const golden = `{"v":1,"revision":7,"pause":{"at":"2026-03-09T12:00:00Z","by":"spotctl@desk","reason":"bad batch",` +
	`"until":"2026-03-10T12:00:00Z"},"paused_kinds":{"render":{"at":"2026-03-09T12:00:30Z","by":"me"}},` +
	`"drain_all":{"at":"2026-03-09T12:01:00Z","by":"spotctl@desk"},"drain":{"vm-1-0":{"at":"2026-03-09T12:02:00Z",` +
	`"finish_by":"2026-03-09T12:32:00Z"}},` +
	`"quarantine":{"vm-2":{"at":"2026-03-09T12:02:30Z"}},` +
	`"cancels":[{"id":"report-7","at":"2026-03-09T12:03:00Z"}],"check_all":"2026-03-09T12:04:00Z",` +
	`"check_before":"2026-03-09T12:05:00Z","kinds":{"digest":"paused"}}`

func TestDocument(t *testing.T) {
	var d Document
	if err := json.Unmarshal([]byte(golden), &d); err != nil {
		t.Fatal(err)
	}
	if d.Revision != 7 || d.Pause == nil || d.Pause.Reason != "bad batch" || len(d.Cancels) != 1 || d.PausedKinds["render"].By != "me" ||
		len(d.Quarantine) != 1 || d.CheckBefore.Minute() != 5 {
		t.Errorf("document = %+v, want every field of the golden one", d)
	}
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(raw, &got), json.Unmarshal([]byte(golden), &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rewritten document (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{`{"v":2,"pause":[]}`: "newer", `{}`: `its version is ""`, `null`: `its version is ""`,
		`{"v":0}`: `its version is "0"`, `[]`: "cannot unmarshal", `{"v":1,"drain":3}`: "cannot unmarshal"} {
		if err := json.Unmarshal([]byte(text), &d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("document %s = %v, want an error with %q", text, err, want)
		}
	}
}

func TestFormatIsDocumented(t *testing.T) {
	for heading, fields := range map[string]any{"Fields of the control document": wire{}, "Fields of a mark": wireMark{},
		"Fields of a cancel": wireCancel{}} {
		var inCode []string
		for field := range reflect.TypeOf(fields).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			inCode = append(inCode, name)
		}
		if diff := cmp.Diff(formats.Documented(t, heading), inCode, sorted); diff != "" {
			t.Errorf("%s (-documented +in code)\n%s", heading, diff)
		}
	}
}

var sorted = cmp.Transformer("sorted", func(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
})

// TestCancels: named for ten minutes, up to the bound; beyond it every job is checked.
func TestCancels(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	var d Document
	d.AddCancels([]string{"a", "b"}, now)
	d.AddCancels([]string{"a"}, now.Add(time.Minute))
	if len(d.Cancels) != 2 || !d.CancelledAt("a").Equal(now.Add(time.Minute)) || !d.CancelledAt("b").Equal(now) ||
		!d.CancelledAt("c").IsZero() {
		t.Errorf("cancels = %+v, want each id once, with its last time", d.Cancels)
	}
	d.AddCancels([]string{"c"}, now.Add(CancelsKept+30*time.Second))
	if !d.CancelledAt("b").IsZero() || d.CancelledAt("a").IsZero() {
		t.Errorf("cancels = %+v, want those of the last %s", d.Cancels, CancelsKept)
	}
	many := make([]string, MaxCancels)
	for i := range many {
		many[i] = fmt.Sprintf("job-%d", i)
	}
	at := now.Add(CancelsKept)
	d.AddCancels(many, at)
	if len(d.Cancels) != 0 || !d.CancelledAt("anything").Equal(at) {
		t.Errorf("after %d more: %d named, CheckAll %s, want none and %s", len(many), len(d.Cancels), d.CheckAll, at)
	}
	last := at.Add(CancelsKept + time.Second)
	d.AddCancels([]string{"d"}, last)
	if !d.CheckAll.IsZero() || !d.CheckBefore.Equal(last) {
		t.Errorf("CheckAll = %s, CheckBefore = %s, want none and %s", d.CheckAll, d.CheckBefore, last)
	}
	if !d.MustCheck(last.Add(-time.Hour)) || !d.MustCheck(last.Add(clockMargin/2)) || d.MustCheck(last.Add(2*clockMargin)) ||
		new(Document).MustCheck(last) {
		t.Error("MustCheck is not that of messages put before the last cancel, and a margin")
	}
}

// inBubble runs a test with the emulator in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, server *storage.Server, store *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		store := NewStore(account.Container("test-control"))
		if found, changed, err := store.Read(t.Context(), ""); err != nil || changed || found.ReadAt.IsZero() {
			t.Errorf("Read without a container = %+v, %t, %v, want nothing, by the service's clock", found, changed, err)
		}
		if _, err := account.Container("test-control").Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		test(t, server, store)
	})
}

func TestReadAndEdit(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		pause := func(d *Document, now time.Time) (bool, error) {
			changed := d.Pause == nil
			d.Pause = &Mark{At: now, By: "me"}
			return changed, nil
		}
		d, err := store.Edit(t.Context(), pause)
		if err != nil || d.Revision != 1 || d.Pause == nil {
			t.Fatalf("Edit = %+v, %v, want revision 1", d, err)
		}
		if again, err := store.Edit(t.Context(), pause); err != nil || again.Revision != 1 {
			t.Errorf("Edit without a change = %+v, %v, want revision 1 still", again, err)
		}
		found, changed, err := store.Read(t.Context(), "")
		if err != nil || !changed || found.Document.Pause == nil || found.ETag == "" {
			t.Fatalf("Read = %+v, %t, %v, want the document", found, changed, err)
		}
		if _, changed, err := store.Read(t.Context(), found.ETag); err != nil || changed {
			t.Errorf("Read under its ETag = %t, %v, want no change", changed, err)
		}
		server.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		if _, changed, err := store.Read(t.Context(), found.ETag); err == nil || changed {
			t.Errorf("Read without a role = %t, %v, want an error", changed, err)
		}
	})
}

// TestEditsDoNotOverwrite: of many changes at once none is lost.
func TestEditsDoNotOverwrite(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := store.Edit(context.Background(), func(d *Document, now time.Time) (bool, error) {
					if d.Drains == nil {
						d.Drains = map[string]Mark{}
					}
					d.Drains[fmt.Sprintf("vm-%d", i)] = Mark{At: now}
					return true, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		found, _, err := store.Read(t.Context(), "")
		if err != nil || len(found.Document.Drains) != 4 || found.Document.Revision != 4 {
			t.Errorf("document = %+v, %v, want 4 drains in 4 revisions", found.Document, err)
		}
	})
}
