package rig

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/retry"
)

// Constants of packages worker and delivery on which these tests rely. They are repeated here, so
// that a change of one fails a test.
const (
	QuarantineAfter = 3
	MaxChargedExits = 10
	SteadyFor       = time.Minute
	SmallState      = 64 << 10
	DeferEvery      = 50 * time.Millisecond
	SampleEvery     = 30 * time.Second
	RecheckEvery    = 5 * time.Second
	UnknownKindFor  = time.Hour
	MoveTimeout     = time.Second
	RenewRetry      = 2 * time.Second
	LostShare       = 6 // of the visibility
	HeartbeatWrite  = time.Second
	GraceOfAClaim   = time.Second
	BufferTime      = 10 * time.Second

	DefaultVisibility = renewal.DefaultVisibility
	MinVisibility     = renewal.MinVisibility
	MaxVisibility     = renewal.MaxVisibility
)

// SleepFor waits for d and reports true, or false when ctx ends first.
func SleepFor(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d) == nil }

// IsClosed reports whether a channel is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// HangingCallDrain is how long a drain may take if one call is swallowed: it gets no
// answer and its connection stays open. A drain without faults takes no time here.
const HangingCallDrain = 1500 * time.Millisecond
