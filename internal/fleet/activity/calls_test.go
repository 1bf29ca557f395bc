package activity

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCalls: the calls of the last minute count by their results, and earlier ones do not.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Calls
		if got := none.Report(); got != (CallReport{}) {
			t.Errorf("Report of nil = %+v, want none", got)
		}
		c := &Calls{}
		for _, r := range []CallResult{CallServed, CallFailed, CallDenied, CallThrottled, CallMissing, CallMissing} {
			c.Add(10*time.Millisecond, r)
		}
		time.Sleep(30 * time.Second)
		c.Add(2*time.Second, CallServed)
		if got, want := c.Report(), (CallReport{Count: 7, Slow: 1, Failed: 5, Denied: 1, Throttled: 1, Missing: 2}); got != want {
			t.Errorf("Report = %+v, want %+v", got, want)
		}
		time.Sleep(45 * time.Second)
		if got, want := c.Report(), (CallReport{Count: 1, Slow: 1}); got != want {
			t.Errorf("Report after 45 s more = %+v, want %+v", got, want)
		}
		time.Sleep(time.Hour)
		if got := c.Report(); got != (CallReport{}) {
			t.Errorf("Report after an hour = %+v, want none", got)
		}
	})
}
