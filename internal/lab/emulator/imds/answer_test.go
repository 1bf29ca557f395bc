package imds

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOnAnswerGetsTheOutcome: the events shown, the requests approved and refused, and
// the faults.
func TestOnAnswerGetsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		vm := s.AddVM(VM{Name: "a"})
		var got []Answer
		s.OnAnswer(func(a Answer) { got = append(got, a) })

		mustSend(t, vm, http.MethodGet, eventsPath, "")
		id := s.Schedule(Event{ID: "E", Type: "Reboot", Resources: []string{"a"}})
		mustSend(t, vm, http.MethodGet, eventsPath, "")
		mustSend(t, vm, http.MethodPost, eventsPath, `{"StartRequests":[{"EventId":"e"}]}`)
		mustSend(t, vm, http.MethodGet, "/metadata/scheduledevents", "")
		mustSend(t, vm, http.MethodGet, "/metadata/identity/oauth2/token?api-version=2018-02-01", "")
		s.OnRequest(func(Request) Fault { return Fault{Status: 410} })
		mustSend(t, vm, http.MethodGet, eventsPath, "")
		s.OnRequest(func(Request) Fault { return Fault{Body: []byte("x")} })
		mustSend(t, vm, http.MethodGet, eventsPath, "")
		mustSend(t, vm, http.MethodGet, eventsPath, "")

		type row struct {
			N, Status int
			Problem   string
			Faulty    bool
			Shown     int
			Approved  []string
		}
		var rows []row
		for _, a := range got {
			if a.VM != "a" || !a.Sent.Equal(time.Now()) {
				t.Errorf("answer %+v, want one to VM a, sent now", a)
			}
			rows = append(rows, row{a.N, a.Status, a.Problem, a.Faulty, len(a.Shown), a.Approved})
		}
		want := []row{
			{N: 1, Status: 200},
			{N: 2, Status: 200, Shown: 1},
			{N: 3, Status: 200, Approved: []string{id}},
			{N: 4, Status: 400, Problem: "api-version is missing or is none"},
			{N: 1, Status: 400, Problem: "the parameter resource is missing"},
			{N: 5, Status: 410, Problem: "injected fault", Faulty: true},
			{N: 6, Status: 429, Problem: "too many requests of this VM"},
			{N: 7, Status: 429, Problem: "too many requests of this VM"},
		}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		if got[1].Shown[0].Status != "Scheduled" {
			t.Errorf("event as it was shown = %s, want Scheduled, although it has started since", got[1].Shown[0].Status)
		}
	})
}

func TestLimitRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		vm := s.AddVM(VM{Name: "a"})
		refused := func() (n int) {
			time.Sleep(time.Second)
			for range 7 {
				if mustSend(t, vm, http.MethodGet, eventsPath, "").status == http.StatusTooManyRequests {
					n++
				}
			}
			return n
		}
		for _, tt := range []struct{ limit, refused int }{{1, 6}, {0, 2}, {-1, 0}} {
			s.LimitRequests(tt.limit)
			if got := refused(); got != tt.refused {
				t.Errorf("of 7 requests at once with a limit of %d, %d were refused, want %d", tt.limit, got, tt.refused)
			}
		}
	})
}
