package drain

import "time"

// firstPatience is how long a released job may wait for its turn on its own queue. A job that would
// wait for longer goes to the queue First.
const firstPatience = 10 * time.Second

// Backlog is what a worker knows of a queue and of the workers that take from it.
type Backlog struct {
	Messages int           // about, running jobs included
	Slots    int           // jobs that the workers run at once, all together
	Queues   int           // among which the workers share their slots
	Usual    time.Duration // run time of a job; 0 if unknown
}

// IsLong reports whether the workers need more than firstPatience until they start a job at the end of
// the queue.
func (b Backlog) IsLong() bool {
	slots := float64(b.Slots) / float64(b.Queues)
	waiting := float64(b.Messages) - slots
	return b.Usual > 0 && waiting > slots*firstPatience.Seconds()/b.Usual.Seconds()
}
