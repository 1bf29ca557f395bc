//go:build integration && linux

package identity

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
	"github.com/spotworker/spotworker/internal/test/integration/namespace"
)

const (
	// tokenLife is the lifetime of a token: short enough to expire within a test.
	tokenLife = 8 * time.Second

	// outageJobs is more than a worker can do in that time.
	outageJobs = 40
)

// TestOutages: a worker starts while the name of its storage account does not resolve,
// and later gets no tokens, until the last one has expired and a sign-in has failed. It
// logs each fault, stays alive, and does all jobs.
func TestOutages(t *testing.T) {
	namespace.Run(t, prepare, outages)
}

func outages(t *testing.T) {
	folder := os.Getenv(binVariable)
	azurite.StartCloud(t, azurite.Cloud{
		Certificate: filepath.Join(folder, "server.pem"), Key: filepath.Join(folder, "server.key"),
		BlobHost: blobHost, QueueHost: queueHost,
	})
	identity := imds.Identity{ClientID: uuid.NewString(), ObjectID: uuid.NewString(), ResourceID: "/subscriptions/s/identity"}
	service := newServiceWith(t, identity, imds.Options{TokenLife: tokenLife})
	service.becomes("spot_0")
	vm := program{folder: folder, client: identity.ClientID}

	worker := vm.start(t)
	worker.until(t, `storage is not ready; no job is lost, trying again".*`+queueName)
	namespace.Hosts(t, map[string]string{blobName: blobHost, queueName: queueHost})
	fill(t, identity.ClientID)
	vm.produce(t, outageJobs)
	worker.until(t, `"msg":"job committed"`)

	service.withoutTokens(true)
	worker.until(t, `sign in as the identity`)
	stuck := len(worker.committed())
	if stuck == outageJobs {
		t.Fatalf("all %d jobs were done before the last token had ended, want some left", stuck)
	}
	service.withoutTokens(false)
	worker.untilCommitted(t, outageJobs)
	worker.end(t)
	t.Logf("%d jobs were committed before tokens were unavailable, %d after", stuck, outageJobs-stuck)
}

// withoutTokens makes the endpoint for tokens fail, or work again.
func (s *service) withoutTokens(none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenless = none
}

// refusesToken answers a request for a token with an error, as the service does
// when it is out of order.
func refusesToken(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/metadata/identity/") {
		return false
	}
	http.Error(w, `{"error":"server_error","error_description":"out of order"}`, http.StatusInternalServerError)
	return true
}
