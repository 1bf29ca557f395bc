package delivery_test

import (
	"net/http"
	"slices"
	"strings"
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

// TestPutBackInAnOutage: a message that is put back says since when, also if that takes several tries.
func TestPutBackInAnOutage(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.Put("a", "other", "")
		claimed := time.Now()
		lease := b.claim()
		end := b.down(func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage })
		wait := b.begin(lease)
		time.Sleep(8 * time.Second)
		end()
		wait()
		e := decoded(t, b.Server.Messages(b.Names.Queue)[0].Text)
		if since := e.PutBackSince.Sub(claimed).Abs(); since > time.Second || b.visible() != 0 {
			t.Errorf("put back since %s, %d visible; want since the claim, none", e.PutBackSince, b.visible())
		}
		found := b.log.Find("message deferred")
		if len(found) != 1 || found[0]["level"] != "INFO" ||
			!strings.HasPrefix(found[0]["since"].(string), claimed.UTC().Format("2006-01-02T15:04:05")) {
			t.Errorf("lines = %v, want one, since the claim", found)
		}
	})
}

// TestRequeueInAnOutage: a message of another worker's kind becomes visible soon, also if that takes several tries.
func TestRequeueInAnOutage(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		p := b.other()
		p.Kinds = []string{"other"}
		defer b.keepAlive(p)()
		b.Put("a", "other", "")
		claimed := time.Now()
		lease := b.claim()
		end := b.down(func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage })
		wait := b.begin(lease)
		time.Sleep(4 * time.Second)
		end()
		wait()
		b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
		if took := time.Since(claimed); took > 15*time.Second {
			t.Errorf("visible after %s, want it before its visibility timeout expires", took)
		}
	})
}
