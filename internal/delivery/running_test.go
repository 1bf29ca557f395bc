package delivery

import (
	"testing"
	"testing/synctest"
)

// TestSaveAllOfAJobThatEnds: a job that ends while all are asked to save answers
// with its end, so that a freeze is acknowledged.
func TestSaveAllOfAJobThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &runningJobs{}
		seat, other := room.add(), room.add()
		r := room.saveAll()
		answer(other.takeRequests(), true)
		seat.remove()
		other.remove()
		answered := make(chan struct{})
		go func() { r.wait(); close(answered) }()
		synctest.Wait()
		select {
		case <-answered:
		default:
			t.Fatal("the round has no answer from a job that ended")
		}
		if r.jobs != 2 || r.unsaved.Load() != 0 {
			t.Errorf("jobs = %d, unsaved = %d, want 2, 0", r.jobs, r.unsaved.Load())
		}
	})
}
