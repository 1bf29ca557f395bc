package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/activity"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lifecycle"
)

// metered is the worker's Observer: it counts for the heartbeat too.
type metered struct {
	Observer
	meter *activity.Meter
}

func (c metered) Delivered() {
	c.meter.Slots().Change(1, 0)
	c.Observer.Delivered()
}

func (c metered) Ended(outcome string) {
	c.meter.Slots().Change(-1, 0)
	c.Observer.Ended(outcome)
}

func (c metered) Started(how string) {
	c.meter.Slots().Change(0, 1)
	c.Observer.Started(how)
}

func (c metered) Returned() {
	c.meter.Slots().Change(0, -1)
	c.Observer.Returned()
}

func (c metered) Spent(kind, effort string, took time.Duration) {
	c.meter.Spent(kind, effort, took)
	c.Observer.Spent(kind, effort, took)
}

func (c metered) Committed(kind string, sincePut, ran time.Duration, interruptions, exits int) {
	c.meter.Committed(kind, ran)
	c.Observer.Committed(kind, sincePut, ran, interruptions, exits)
}

// Failed counts what a handler did on this worker: not a message that none can read, nor
// workers that died before.
func (c metered) Failed(kind, class string) {
	if delivery.FailedHere(class) {
		c.meter.Failed(kind)
	}
	c.Observer.Failed(kind, class)
}

func (c metered) Entered(state string, ending bool) {
	c.meter.Slots().Work(state == lifecycle.Process.String())
	c.Observer.Entered(state, ending)
}
