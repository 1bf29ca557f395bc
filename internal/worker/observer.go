package worker

import (
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// metered returns an observer that counts for the heartbeat too.
func metered(next observe.Observer, meter *activity.Meter) observe.Observer {
	slots := meter.Slots()
	return func(e observe.Event) {
		switch e := e.(type) {
		case observe.Delivered:
			slots.Change(1, 0)
		case observe.Ended:
			slots.Change(-1, 0)
		case observe.Started:
			slots.Change(0, 1)
		case observe.Returned:
			slots.Change(0, -1)
		case observe.Spent:
			meter.Spent(e.Kind, e.Effort, e.Took)
		case observe.Committed:
			meter.Committed(e.Kind, e.Ran)
		case observe.Failed:
			if e.Here() {
				meter.Failed(e.Kind)
			}
		case observe.Entered:
			slots.Work(e.State == lifecycle.Process)
		}
		next(e)
	}
}
