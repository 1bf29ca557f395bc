package lab

import (
	"reflect"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

func TestPace(t *testing.T) {
	files := []File{{Blob: "a", Size: 10 * mib}, {Blob: "b", Size: 5 * mib}, {Blob: "c", Size: 3 * mib}}
	for _, test := range []struct {
		name    string
		files   []File
		jobTime time.Duration
		call    storage.Call
		want    int64 // bytes per second; 0: no limit
	}{
		{"the mean takes the job's time", files, 12 * second, storage.Call{Operation: storage.OpGetBlob, Container: "in"}, mib / 2},
		{"no pace", files, 0, storage.Call{Operation: storage.OpGetBlob, Container: "in"}, 0},
		{"no files", nil, second, storage.Call{Operation: storage.OpGetBlob, Container: "in"}, 0},
		{"never no bytes at all", []File{{Size: 1}}, time.Hour, storage.Call{Operation: storage.OpGetBlob, Container: "in"}, 1},
		{"another container", files, 12 * second, storage.Call{Operation: storage.OpGetBlob, Container: "out"}, 0},
		{"another operation", files, 12 * second, storage.Call{Operation: storage.OpPutBlob, Container: "in"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := paceFor("in", test.files, test.jobTime).fault(test.call)
			if want := (storage.Fault{Bandwidth: storage.Bandwidth{Down: test.want}}); !reflect.DeepEqual(got, want) {
				t.Errorf("fault = %+v, want %+v", got, want)
			}
		})
	}
}
