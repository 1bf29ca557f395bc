package demo

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

func TestHashedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		ranges []hashedRange
		want   map[string]int64 // by the VM that hashed them first
	}{
		{"one after the other", []hashedRange{
			{"j", "a", 0, 4, at(1)}, {"j", "b", 4, 4, at(2)},
		}, map[string]int64{}},
		{"the same of another job", []hashedRange{
			{"j", "a", 0, 4, at(1)}, {"k", "b", 0, 4, at(2)},
		}, map[string]int64{}},
		{"all again", []hashedRange{
			{"j", "a", 0, 4, at(1)}, {"j", "a", 4, 4, at(2)}, {"j", "b", 0, 4, at(3)}, {"j", "b", 4, 4, at(4)},
		}, map[string]int64{"a": 8}},
		{"the end again, in other pieces", []hashedRange{
			{"j", "a", 0, 10, at(1)}, {"j", "b", 6, 2, at(2)}, {"j", "b", 8, 12, at(3)},
		}, map[string]int64{"a": 4}},
		{"the middle again", []hashedRange{
			{"j", "a", 0, 10, at(1)}, {"j", "b", 4, 2, at(2)}, {"j", "c", 0, 10, at(3)},
		}, map[string]int64{"a": 2 + 8, "b": 2}},
		{"reported out of order", []hashedRange{
			{"j", "b", 0, 4, at(2)}, {"j", "a", 0, 4, at(1)},
		}, map[string]int64{"a": 4}},
		{"by the same worker", []hashedRange{
			{"j", "a", 0, 4, at(1)}, {"j", "a", 0, 4, at(2)},
		}, map[string]int64{"a": 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]int64{}
			for _, a := range hashedAgain(test.ranges) {
				if !a.first.at.Before(a.second.at) || a.first.job != a.second.job {
					t.Errorf("%+v hashed after %+v", a.second, a.first)
				}
				got[a.first.vm] += a.bytes
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("hashed twice (-want +got):\n%s", diff)
			}
		})
	}
}
