package lab

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// TestLocalIsSlowAndStrict: the account of a local Azure takes as long, and as many
// messages a second, as it was started with.
func TestLocalIsSlowAndStrict(t *testing.T) {
	const latency = 20 * time.Millisecond
	local, err := StartLocal(LocalConfig{Latency: latency, Throttle: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	account, err := local.Account()
	if err != nil {
		t.Fatal(err)
	}
	once := policy.WithRetryOptions(t.Context(), policy.RetryOptions{MaxRetries: -1})
	q := account.Queue("jobs")
	begun := time.Now()
	if _, err := q.Create(once, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < latency {
		t.Errorf("a call took %s, want at least %s", took, latency)
	}
	// A second has passed at least once if seven calls for messages are not refused.
	for range 7 {
		_, _ = q.DequeueMessages(once, nil) // refused over the limit, which Throttled counts
	}
	if took, refused := time.Since(begun), local.Storage.Throttled(); refused == 0 && took < time.Second {
		t.Errorf("no call of 7 in %s was refused with 3 allowed a second", took)
	}
}
