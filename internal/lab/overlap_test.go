package lab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a moment of the tests' day, that long after its start.
func at(d time.Duration) time.Time {
	return time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC).Add(d)
}

const second = time.Second

func TestHashedTwice(t *testing.T) {
	for _, test := range []struct {
		name  string
		spans []span
		want  map[string]int64 // by VM; those with 0 left out
	}{
		{"one after the other", []span{
			{"j", "a", 0, 4, at(1)}, {"j", "b", 4, 4, at(2)},
		}, map[string]int64{}},
		{"the same of another job", []span{
			{"j", "a", 0, 4, at(1)}, {"k", "b", 0, 4, at(2)},
		}, map[string]int64{}},
		{"all again", []span{
			{"j", "a", 0, 4, at(1)}, {"j", "a", 4, 4, at(2)}, {"j", "b", 0, 4, at(3)}, {"j", "b", 4, 4, at(4)},
		}, map[string]int64{"a": 8}},
		{"the end again, in other pieces", []span{
			{"j", "a", 0, 10, at(1)}, {"j", "b", 6, 2, at(2)}, {"j", "b", 8, 12, at(3)},
		}, map[string]int64{"a": 4}},
		{"the middle again", []span{
			{"j", "a", 0, 10, at(1)}, {"j", "b", 4, 2, at(2)}, {"j", "c", 0, 10, at(3)},
		}, map[string]int64{"a": 2 + 8, "b": 2}},
		{"reported out of order", []span{
			{"j", "b", 0, 4, at(2)}, {"j", "a", 0, 4, at(1)},
		}, map[string]int64{"a": 4}},
		{"by the same worker", []span{
			{"j", "a", 0, 4, at(1)}, {"j", "a", 0, 4, at(2)},
		}, map[string]int64{"a": 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := hashedTwice(test.spans)
			for vm, n := range got {
				if n == 0 {
					delete(got, vm)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("hashed twice (-want +got):\n%s", diff)
			}
		})
	}
}
