package outage

import (
	"sync"
	"time"
)

const (
	// blobsFailFor is for how long calls for blobs have failed until an account counts as
	// an account without blobs, and blobsFailTimes how many of them at least.
	blobsFailFor   = time.Second
	blobsFailTimes = 3
)

// Blobs knows the storage accounts where all calls for blobs fail, so that a worker
// begins few jobs there: each would keep its slot until it can write its record. Its
// methods may be called from several goroutines. A nil Blobs knows of none.
type Blobs struct {
	mu       sync.Mutex
	failures map[string]failing // by account; none where the last call was answered
}

// failing are calls for blobs that failed in a row.
type failing struct {
	calls int
	since time.Time
}

// Ended learns from a call that has ended. Throttling is no failure: the pace of claims
// follows it.
func (b *Blobs) Ended(c Call) {
	if c.Service != "blob" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f := b.failures[c.Account]; {
	case c.Fault == None || c.Fault == Throttled:
		delete(b.failures, c.Account)
	case c.may:
	case f.calls == 0:
		if b.failures == nil {
			b.failures = map[string]failing{}
		}
		b.failures[c.Account] = failing{1, c.Ended}
	default:
		f.calls++
		b.failures[c.Account] = f
	}
}

// Fail reports whether calls for blobs of an account fail at now.
func (b *Blobs) Fail(account string, now time.Time) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.failures[account]
	return f.calls >= blobsFailTimes && now.Sub(f.since) >= blobsFailFor
}
