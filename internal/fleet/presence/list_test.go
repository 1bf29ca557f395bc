package presence

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// ListVM returns the workers of one VM only, however similar the names are.
func TestListVM(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		write := func(worker, vm string) {
			t.Helper()
			if err := store.Write(t.Context(), Presence{Worker: worker, Machine: Machine{VM: vm}, State: "process",
				StartedAt: noon, At: noon}); err != nil {
				t.Fatal(err)
			}
		}
		write("web-0123abcd-0", "web")
		time.Sleep(10 * time.Second)
		write("web-0123abcd-blue", "web")
		write("web-1-0123abcd-0", "web-1")
		write("web-deadbeef-0123abcd-0", "web-deadbeef")
		write("web_1-0123abcd-0", "web_1")
		write("web-0123abcd-old", "") // of a version that does not say
		write("Set_000001-0123abcd-0", "Set_000001")
		time.Sleep(5 * time.Second)
		checkListVM(t, server, store, false)
		server.SetFullPages()
		checkListVM(t, server, store, true)
	})
}

// checkListVM checks the workers of each VM and, if counted, the number of calls.
func checkListVM(t *testing.T, server *storage.Server, store *Store, counted bool) {
	t.Helper()
	for _, row := range []struct {
		vm    string
		want  []string
		ages  []time.Duration
		calls int64
	}{
		{"web", []string{"web-0123abcd-0", "web-0123abcd-blue"}, []time.Duration{15 * time.Second, 5 * time.Second}, 1},
		{"web-1", []string{"web-1-0123abcd-0"}, []time.Duration{5 * time.Second}, 1},
		{"web_1", []string{"web_1-0123abcd-0"}, []time.Duration{5 * time.Second}, 1},
		{"SET_000001", []string{"Set_000001-0123abcd-0"}, []time.Duration{5 * time.Second}, 2},
		{"we", nil, nil, 2},
	} {
		server.ResetCounts()
		found, err := store.ListVM(t.Context(), row.vm)
		if err != nil || len(found) != len(row.want) {
			t.Errorf("ListVM %s = %+v, %v, want %v", row.vm, found, err, row.want)
			continue
		}
		for i, p := range found {
			if p.Worker != row.want[i] || p.Age != row.ages[i] {
				t.Errorf("ListVM %s, %d = %s, %s old, want %s, %s", row.vm, i, p.Worker, p.Age, row.want[i], row.ages[i])
			}
		}
		if calls := server.Counts()[storage.OpListBlobs]; counted && calls != row.calls {
			t.Errorf("ListVM %s took %d calls, want %d", row.vm, calls, row.calls)
		}
	}
}

// An event that was put off is not the event that was prepared for.
func TestReadyCovers(t *testing.T) {
	ready := Ready{ID: "e", NotBefore: noon}
	for _, row := range []struct {
		id   string
		at   time.Time
		want bool
	}{
		{"E", noon, true},
		{"e", noon.Add(-time.Minute), true},
		{"e", time.Time{}, true},
		{"e", noon.Add(time.Second / 2), true},
		{"e", noon.Add(time.Second), false},
		{"f", noon, false},
	} {
		if got := ready.Covers(row.id, row.at); got != row.want {
			t.Errorf("Covers(%s, %s) = %t, want %t", row.id, row.at, got, row.want)
		}
	}
	if (Ready{ID: "e"}).Covers("e", noon) {
		t.Error("Covers an event that has a time now and had none = true, want false")
	}
}
