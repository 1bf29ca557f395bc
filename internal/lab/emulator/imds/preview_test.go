package imds

import (
	"net/http"
	"strings"
	"testing"
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
