package lab

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

func TestPace(t *testing.T) {
	files := []File{{Blob: "a", Size: 10 * mib}, {Blob: "b", Size: 5 * mib}, {Blob: "c", Size: 5 * mib}}
	get := func(blob string, r *storage.Range) storage.Call {
		return storage.Call{Operation: storage.OpGetBlob, Container: "in", Blob: blob, Range: r}
	}
	for _, test := range []struct {
		name     string
		parallel int
		workTime time.Duration
		call     storage.Call
		want     time.Duration
	}{
		{"a whole blob", 2, 10 * second, get("b", nil), 5 * second},
		{"a range", 2, 10 * second, get("b", &storage.Range{Offset: mib, Count: 2 * mib}), 2 * second},
		{"the end of a blob", 2, 10 * second, get("b", &storage.Range{Offset: 4 * mib, Count: 4 * mib}), second},
		{"an open range", 2, 10 * second, get("b", &storage.Range{Offset: 2 * mib, Count: -1}), 3 * second},
		{"a range behind the end", 2, 10 * second, get("b", &storage.Range{Offset: 9 * mib, Count: 1}), 0},
		{"the largest, not longer than a job may take", 2, time.Hour, get("a", nil), longestJob},
		{"no pace", 2, 0, get("a", nil), 0},
		{"another container", 2, 10 * second, storage.Call{Operation: storage.OpGetBlob, Container: "out", Blob: "a"}, 0},
		{"another operation", 2, 10 * second, storage.Call{Operation: storage.OpPutBlob, Container: "in", Blob: "a"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := paceFor("in", files, test.parallel, test.workTime).fault(test.call)
			if d := got.Before - test.want; d.Abs() > time.Microsecond {
				t.Errorf("delay = %s, want %s", got.Before, test.want)
			}
		})
	}
}
