package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/events"
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

	// Blind reports since when no poll of the metadata service was answered, and with
	// the zero time that polls are answered again.
	Blind(since time.Time)
}

// unobserved is the Observer of a worker that was given none.
type unobserved struct{}

func (unobserved) Entered(string, bool)               {}
func (unobserved) Delivered()                         {}
func (unobserved) Ended(string)                       {}
func (unobserved) Started(string)                     {}
func (unobserved) Saved(string, int64, time.Duration) {}
func (unobserved) Broke(string)                       {}
func (unobserved) Recovered(string)                   {}
func (unobserved) Refused(string)                     {}
func (unobserved) LeftOut()                           {}
func (unobserved) Circles(string)                     {}
func (unobserved) Announced(string, string)           {}
func (unobserved) Unrecognised()                      {}
func (unobserved) Acknowledged(string)                {}
func (unobserved) Drained(string, time.Duration)      {}
func (unobserved) Polled(time.Time, string)           {}
func (unobserved) Blind(time.Time)                    {}

// Words are all words that an [Observer] may get, a list for each parameter.
type Words struct {
	States, Outcomes, Starts, Saves, Circles, Acknowledgements, DrainReasons, PollResults, Refusals []string
}

// ObserverWords returns them.
func ObserverWords() Words {
	w := Words{
		Outcomes: delivery.Outcomes(), Starts: delivery.Starts(), Saves: delivery.Saves(), Circles: delivery.Circles(),
		Acknowledgements: events.AcknowledgeResults(),
		DrainReasons:     []string{string(job.Evicted), string(job.Shutdown), string(job.Drained)},
		Refusals:         checkpoint.PermanentRefusals(),
	}
	for _, state := range lifecycle.States() {
		w.States = append(w.States, state.String())
	}
	for _, result := range preempt.PollResults() {
		w.PollResults = append(w.PollResults, string(result))
	}
	return w
}
