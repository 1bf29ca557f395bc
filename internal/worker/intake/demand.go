package intake

import (
	"math"
	"time"
)

const (
	// batch is how many messages one call claims at most.
	batch = 32

	// soon is how much work may wait for slots, in time: enough for full batches of
	// short jobs, and far less than a message may wait.
	soon = 2 * time.Second

	// MaxClaims bounds the claims in flight.
	MaxClaims = 16
)

// Demand holds a worker's slots and messages, and the times of its jobs and
// claims, when it decides whether to claim.
type Demand struct {
	Slots int // jobs that run at once
	Free  int // slots without a job

	Buffered int // claimed messages that wait for a slot
	Asked    int // messages that claims in flight ask for

	// Mean is how long recent jobs took, 0 if that is unknown, and Claim how long
	// recent claims took.
	Mean, Claim time.Duration

	// Quiet is how long ago the last job ended. When none has for longer than the jobs
	// before took, the jobs that run now are others.
	Quiet time.Duration

	// Backlog says that more messages wait: the last claim of a queue brought as many
	// as it asked for. Without one, messages beyond the free slots are left to other
	// workers, which may have slots for them.
	Backlog bool
}

// Wanted returns how many messages to claim now in one call, 0 for none: enough for
// the free slots, or a full batch as soon as there is room for one in the buffer.
func (d Demand) Wanted() int {
	idle := d.Free - d.Buffered - d.Asked
	room := idle + d.stock()
	if idle <= 0 && room < batch {
		return 0
	}
	return min(room, batch)
}

// Claims returns how many claims may be in flight: enough to bring as many messages
// as the slots start in the time that one claim takes, and one more.
func (d Demand) Claims() int {
	if !d.Backlog || d.Mean == 0 {
		return 1
	}
	return min(1+int(math.Ceil(d.started(d.Claim)/batch)), MaxClaims)
}

// stock returns how many messages should be in the buffer or on their way to it,
// besides the messages for free slots: a batch, and the messages that the slots will
// start while two claims follow one another. They are never more than the slots will
// start within [soon], and there are none when no job has ended for that long.
func (d Demand) stock() int {
	if !d.Backlog || d.Mean == 0 || d.Quiet >= soon {
		return 0
	}
	return int(min(d.started(soon), batch+d.started(2*min(d.Claim, d.Mean))))
}

// started returns how many jobs the slots start in that time.
func (d Demand) started(within time.Duration) float64 {
	return float64(d.Slots) * float64(within) / float64(d.Mean)
}
