package activity

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCalls: the calls of the last minutes count, and earlier ones do not.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Calls
		if got := none.Report(); got != (CallReport{}) {
			t.Errorf("Report of nil = %+v, want none", got)
		}
		c := &Calls{}
		for range 3 {
			c.Add(10*time.Millisecond, true)
		}
		time.Sleep(2 * time.Minute)
		for range 4 {
			c.Add(2*time.Second, false)
		}
		got := c.Report()
		if got.Count != 7 || got.Slow != 4 || got.Failed != 3 || got.Typical < 2*time.Second || got.Typical > 2500*time.Millisecond {
			t.Errorf("Report = %+v, want 7 calls, 4 slow, 3 failed and 2 s", got)
		}
		time.Sleep(3 * time.Minute)
		if got := c.Report(); got.Count != 4 || got.Slow != 4 || got.Failed != 0 {
			t.Errorf("Report after 3 min more = %+v, want the last four", got)
		}
		time.Sleep(time.Hour)
		if got := c.Report(); got != (CallReport{}) {
			t.Errorf("Report after an hour = %+v, want none", got)
		}
	})
}
