package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// Observer counts what happens to a worker and to its jobs, for metrics. Its
// methods are called from many goroutines at once, also while locks are held: they
// must be quick and must not call the worker.
type Observer interface {
	delivery.Observer
	events.Observer

	// Entered reports each state of package lifecycle, and an event that changes only
	// what follows. ending says that the process was asked to end.
	Entered(state string, ending bool)

	// Drained reports the end of a drain, and how long after its notice it came.
	Drained(reason string, took time.Duration)

	// QueueRead reports about how many messages a queue has, and for how long the one at
	// its front has waited; 0 if none is visible.
	QueueRead(queue string, messages int, oldest time.Duration)

	// Watch gives the function that returns, at any time, the age of the oldest last
	// report and of the oldest checkpoint of the running jobs, how many of them are silent
	// for unusually long, and how many jobs wait because no live worker has their kind. It
	// is called once, at first.
	Watch(sight func() (report, checkpoint time.Duration, silent, lacking int))

	// Blind reports since when no poll of the metadata service was answered, and with
	// the zero time that polls are answered again.
	Blind(since time.Time)
}

// Unobserved returns an Observer that counts nothing, for workers without an Observer and
// for other Observers to embed.
func Unobserved() Observer { return unobserved{} }

type unobserved struct{}

func (unobserved) Entered(string, bool)                                                 {}
func (unobserved) Delivered()                                                           {}
func (unobserved) Ended(string)                                                         {}
func (unobserved) Started(string)                                                       {}
func (unobserved) Waited(string, time.Duration)                                         {}
func (unobserved) Returned()                                                            {}
func (unobserved) Spent(string, string, time.Duration)                                  {}
func (unobserved) Committed(string, time.Duration, time.Duration, int, int)             {}
func (unobserved) Failed(string, string)                                                {}
func (unobserved) QueueRead(string, int, time.Duration)                                 {}
func (unobserved) Watch(func() (report, checkpoint time.Duration, silent, lacking int)) {}
func (unobserved) Saved(string, int64, time.Duration)                                   {}
func (unobserved) Broke(string)                                                         {}
func (unobserved) Recovered(string)                                                     {}
func (unobserved) Refused(string)                                                       {}
func (unobserved) OutputSent(int64)                                                     {}
func (unobserved) LeftOut()                                                             {}
func (unobserved) Moved(string)                                                         {}
func (unobserved) Circles(string)                                                       {}
func (unobserved) Announced(string, string)                                             {}
func (unobserved) Unrecognised()                                                        {}
func (unobserved) Acknowledged(string)                                                  {}
func (unobserved) Drained(string, time.Duration)                                        {}
func (unobserved) Polled(time.Time, string)                                             {}
func (unobserved) Blind(time.Time)                                                      {}

// Words are all words that an [Observer] may get, a list for each parameter.
type Words struct {
	States, Outcomes, Starts, Waits, Efforts, FailureClasses, Saves, Moves, Circles, Acknowledgements, DrainReasons, PollResults, Refusals,
	Inputs []string
}

// ObserverWords returns them.
func ObserverWords() Words {
	w := Words{
		Outcomes: delivery.Outcomes(), Starts: delivery.Starts(), Waits: delivery.Waits(), Efforts: delivery.Efforts(),
		FailureClasses: delivery.FailureClasses(),
		Saves:          delivery.Saves(), Moves: delivery.Moves(), Circles: delivery.Circles(),
		Acknowledgements: events.AcknowledgeResults(),
		DrainReasons:     []string{string(job.Evicted), string(job.Shutdown), string(job.Drained)},
		Refusals:         checkpoint.PermanentRefusals(), Inputs: inputs.Results(),
	}
	for _, state := range lifecycle.States() {
		w.States = append(w.States, state.String())
	}
	for _, result := range preempt.PollResults() {
		w.PollResults = append(w.PollResults, string(result))
	}
	return w
}

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

// Failed counts failures of handlers on this worker: not a message that none can read,
// nor workers that died before.
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
