package preempt

import "time"

// pollInterval is what the service's documentation recommends.
const pollInterval = time.Second

// Delays before a failed request is repeated. The first is short, since the
// usual cause is a passing one and an eviction leaves no time; the last is two
// polls, so that a service in trouble is not made worse.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// retryDelay returns how long to wait after the given number of failures in a
// row: firstRetry, then twice as long each time up to lastRetry. A throttled
// request waits for lastRetry at once, as more requests are what is wrong.
func retryDelay(failures int, throttled bool) time.Duration {
	if throttled {
		return lastRetry
	}
	delay := firstRetry
	for range failures - 1 {
		if delay *= 2; delay >= lastRetry {
			return lastRetry
		}
	}
	return delay
}

// pace says when the next poll is due. It is pure: time comes in as an argument.
type pace struct {
	next     time.Time
	number   int // of the newest poll sent
	failures int // in a row, of polls that were the newest when they failed
}

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// wait returns how long until a poll is due. One that is due but finds no room
// is sent when an answer makes room, so nothing has to wake up for it.
func (p *pace) wait(now time.Time) time.Duration {
	if p.due(now) {
		return pollTimeout
	}
	return p.next.Sub(now)
}

// sent notes a poll and returns its number. The next is due an interval later,
// answered or not.
func (p *pace) sent(now time.Time) int {
	p.number++
	p.next = now.Add(pollInterval)
	return p.number
}

// answered notes how a poll ended. Only the failure of the newest poll changes
// the pace: while an older one fails, a newer one is asking already.
func (p *pace) answered(a polled, good bool) {
	switch {
	case good:
		p.failures = 0
	case a.err != nil && a.number == p.number:
		p.failures++
		p.next = a.at.Add(retryDelay(p.failures, isThrottled(a.err)))
	}
}
