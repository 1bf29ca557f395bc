package delivery_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestRepeatsOfACall: a call that storage does not answer, or refuses, is repeated after half a second, then after twice as long each
// time, before the handler is called and at the end alike. The log tells both apart.
func TestRepeatsOfACall(t *testing.T) {
	const unavailable, refused = "storage is unavailable; trying again", "storage refused the call; trying again"
	for name, row := range map[string]struct {
		operation, code string
		status          int
		line            string
	}{
		"read of the payload": {storage.OpGetBlob, "ServerBusy", http.StatusServiceUnavailable, unavailable},
		"read, a fault":       {storage.OpGetBlob, "InternalError", http.StatusInternalServerError, unavailable},
		"read, refused":       {storage.OpGetBlob, "AuthorizationFailure", http.StatusForbidden, refused},
		"commit":              {storage.OpDeleteBlob, "ServerBusy", http.StatusServiceUnavailable, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutLarge("a", "k", make([]byte, 100<<10))
				lease := b.claim()
				end := b.fail(row.status, row.code, on(b.Names.Payloads, row.operation))
				wait := b.begin(lease)
				time.Sleep(20 * time.Second)
				end()
				wait()
				var delays []time.Duration
				for _, line := range b.log.Find(row.line) {
					delays = append(delays, time.Duration(line["retry_in"].(float64)))
				}
				want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
				if len(delays) < 3 || !slices.Equal(delays[:3], want) || b.Record("a").Status != checkpoint.Done {
					t.Errorf("record = %s after repeats in %s, want it done, and %s first", b.Record("a").Status, delays, want)
				}
			})
		})
	}
}
