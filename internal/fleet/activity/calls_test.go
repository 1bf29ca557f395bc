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
		if count, slow, typical := none.Report(); count != 0 || slow != 0 || typical != 0 {
			t.Errorf("Report of nil = %d, %d, %s, want none", count, slow, typical)
		}
		c := &Calls{}
		for range 3 {
			c.Add(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		for range 4 {
			c.Add(2 * time.Second)
		}
		if count, slow, typical := c.Report(); count != 7 || slow != 4 || typical < 2*time.Second || typical > 2500*time.Millisecond {
			t.Errorf("Report = %d calls, %d slow, %s, want 7, 4 and 2 s", count, slow, typical)
		}
		time.Sleep(3 * time.Minute)
		if count, slow, _ := c.Report(); count != 4 || slow != 4 {
			t.Errorf("Report after 3 min more = %d, %d, want the last four", count, slow)
		}
		time.Sleep(time.Hour)
		if count, _, _ := c.Report(); count != 0 {
			t.Errorf("Report after an hour = %d calls, want none", count)
		}
	})
}
