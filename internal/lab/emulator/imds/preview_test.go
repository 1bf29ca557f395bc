package imds

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPreviewOfEvents: the preview version is found only where it is served, and
// it alone shows rebalance recommendations.
func TestPreviewOfEvents(t *testing.T) {
	const recommendation = "SpotRebalanceRecommendation"
	for _, tt := range []struct {
		served  bool
		version string
		status  int
		shown   bool
	}{
		{false, "2024-07-09", http.StatusNotFound, false},
		{false, "2020-07-01", http.StatusOK, false},
		{true, "2024-07-09", http.StatusOK, true},
		{true, "2020-07-01", http.StatusOK, false},
	} {
		s := New(Options{PreviewEvents: tt.served})
		vm := s.AddVM(VM{Name: "a"})
		s.Schedule(Event{Type: recommendation, Status: "Advisory", Resources: []string{"a"}})
		r := mustSend(t, vm, http.MethodGet, "/metadata/scheduledevents?api-version="+tt.version, "")
		if shown := strings.Contains(r.body, recommendation); r.status != tt.status || shown != tt.shown {
			t.Errorf("preview served = %t: version %s = %d, recommendation shown = %t, want %d, %t",
				tt.served, tt.version, r.status, shown, tt.status, tt.shown)
		}
	}
}

// TestAdviceNeverStarts: neither by an acknowledgement nor by the clock.
func TestAdviceNeverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{PreviewEvents: true})
		vm := s.AddVM(VM{Name: "a"})
		id := s.Schedule(Event{Type: "SpotRebalanceRecommendation", Status: "Advisory", Resources: []string{"a"}})
		r := mustSend(t, vm, http.MethodPost, "/metadata/scheduledevents?api-version=2024-07-09", `{"StartRequests":[{"EventId":"`+id+`"}]}`)
		s.Start(id)
		time.Sleep(time.Hour)
		if e, _ := s.Event(id); r.status != http.StatusOK || e.Status != "Advisory" {
			t.Errorf("advice that was acknowledged (%d) is %s, want 200 and Advisory", r.status, e.Status)
		}
	})
}
