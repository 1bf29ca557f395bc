package monitor

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/telemetry/health"
)

// The states that the Application Health extension takes from an answer.
const (
	stateHealthy   = "Healthy"
	stateUnhealthy = "Unhealthy"
)

// probeAnswer is the answer to a probe.
type probeAnswer struct {
	ApplicationHealthState string

	// Reason and Stuck are for people; absent while all is well.
	Reason string      `json:"reason,omitempty"`
	Stuck  []stuckLoop `json:"stuck,omitempty"`

	// Notes are for people, also while all is well.
	Notes []string `json:"notes,omitempty"`
}

type stuckLoop struct {
	Loop           string  `json:"loop"`
	OverdueSeconds float64 `json:"overdue_seconds"`
}

func verdictOf(r health.Report) probeAnswer {
	if r.Healthy() {
		return probeAnswer{ApplicationHealthState: stateHealthy, Notes: r.Notes}
	}
	v := probeAnswer{ApplicationHealthState: stateUnhealthy, Reason: r.String(), Notes: r.Notes}
	for _, s := range r.Stuck {
		v.Stuck = append(v.Stuck, stuckLoop{s.Loop, s.Overdue.Round(time.Millisecond).Seconds()})
	}
	return v
}

// healthz answers probes. It logs a verdict that differs from the one before.
type healthz struct {
	check func() health.Report
	log   *slog.Logger

	mu      sync.Mutex
	healthy bool
}

// ServeHTTP implements [http.Handler]. The status is 200 for an unhealthy worker too.
func (h *healthz) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, http.StatusOK)
}

// serveLive answers the liveness probe of Kubernetes, which reads the status alone: 503 for
// an unhealthy worker.
func (h *healthz) serveLive(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, http.StatusServiceUnavailable)
}

// answer sends the verdict, with the given status if it is Unhealthy.
func (h *healthz) answer(w http.ResponseWriter, r *http.Request, unhealthy int) {
	report := h.check()
	h.tell(r, report)
	body, err := json.Marshal(verdictOf(report))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !report.Healthy() {
		w.WriteHeader(unhealthy)
	}
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

func (h *healthz) tell(r *http.Request, report health.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case report.Healthy() == h.healthy:
		return
	case report.Healthy():
		h.log.InfoContext(r.Context(), "worker is healthy again")
	default:
		h.log.ErrorContext(r.Context(), "worker is not healthy; it may be repaired or restarted", "reason", report.String())
	}
	h.healthy = report.Healthy()
}
