package up

import (
	"fmt"
	"strings"
	"testing"
)

// TestStopAndStart: storage can be stopped and started, and not twice.
func TestStopAndStart(t *testing.T) {
	r := startUp(t, upOnAnyPorts())
	for _, test := range []struct {
		stop bool
		want string // in the answer, or with a "!" in the error
	}{{false, "!not stopped"}, {true, "lab start ends that"}, {true, "!stopped already"}, {false, "answers again"}} {
		send := Start
		if test.stop {
			send = Stop
		}
		got, err := send(t.Context(), r.port)
		want, fails := strings.CutPrefix(test.want, "!")
		if fails != (err != nil) || !strings.Contains(got+fmt.Sprint(err), want) {
			t.Errorf("stop %t = %q, %v, want %q", test.stop, got, err, test.want)
		}
	}
}
