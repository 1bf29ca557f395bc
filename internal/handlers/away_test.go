package handlers

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestServiceAway: data that cannot be reached for a while is not counted against
// the job, which resumes later. A refusal may be permanent, and counts.
func TestServiceAway(t *testing.T) {
	for name, row := range map[string]struct {
		fault       storage.Fault
		interrupted bool
	}{
		"no connection": {storage.Fault{DropRequest: true}, true},
		"busy":          {storage.Fault{Refuse: &storage.Error{Status: http.StatusServiceUnavailable, Code: "ServerBusy"}}, true},
		"broken":        {storage.Fault{Refuse: &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError"}}, true},
		"throttled":     {storage.Fault{Refuse: &storage.Error{Status: http.StatusTooManyRequests, Code: "TooManyRequests"}}, true},
		"no role":       {storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}, false},
		"bad request":   {storage.Fault{Refuse: &storage.Error{Status: http.StatusBadRequest, Code: "InvalidHeaderValue"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				data := content(3*rangeSize + 1)
				b.put(t, "blob", data)
				reads := 0
				b.server.OnCall(func(c storage.Call) storage.Fault {
					if c.Operation == storage.OpGetBlob {
						if reads++; reads > 1 {
							return row.fault
						}
					}
					return storage.Fault{}
				})
				j := digestJob("blob", nil)
				_, err := b.digest.Run(t.Context(), j)
				if err == nil || job.IsInterrupted(err) != row.interrupted || job.IsPermanent(err) {
					t.Errorf("digest = %v (interrupted %t), want an error (interrupted %t)", err, job.IsInterrupted(err), row.interrupted)
				}
				b.server.OnCall(nil)
				result, err := b.digest.Run(t.Context(), digestJob("blob", job.ControlOf(j).Latest()))
				if err != nil {
					t.Fatalf("digest afterwards = %v", err)
				}
				wantDigest(t, result, data)
			})
		})
	}
}
