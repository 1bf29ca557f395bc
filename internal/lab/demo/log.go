package demo

import (
	"encoding/json"
	"time"

	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lifecycle"
)

// add adds events to the history.
func (d *demo) add(event func(*history)) {
	d.stage.Recorder.Do(func() { event(d.history) })
}

// look calls see with the history, which it must not keep. changed is closed when
// the history has grown.
func (d *demo) look(see func(*history)) (changed <-chan struct{}) {
	return d.stage.Recorder.Look(func(f *stage.Facts) {
		d.history.Facts = f
		see(d.history)
	})
}

// fate records the script's action on a VM.
func (d *demo) fate(vm string, change func(*fate)) {
	d.add(func(h *history) {
		f := h.fates[vm]
		change(&f)
		h.fates[vm] = f
	})
}

// logLine holds the fields that the demo reads of a line of a worker's log.
type logLine struct {
	Time        time.Time
	Msg         string
	JobID       string  `json:"job_id"`
	MessageID   string  `json:"message_id"`
	Offset      int64   `json:"offset"`
	Bytes       int64   `json:"bytes"`
	ResumedAt   float64 `json:"resumed_at"`
	SinceNotice string  `json:"since_notice"`
	Reason      string  `json:"reason"`
	To          string  `json:"to"` // state of the worker
}

// endKinds are the log messages that say how a delivery ended without a commit.
var endKinds = map[string]endKind{
	"message deferred":                                    deferred,
	"message deleted: its job is over already":            superfluous,
	"message left alone; another worker may have its job": dropped,
	"message moved to the poison queue":                   poisoned,
}

// onLine is the fleet's hook for the workers' logs. It ignores lines that the
// history has no use for.
func (d *demo) onLine(vm string, raw []byte) {
	var line logLine
	if json.Unmarshal(raw, &line) != nil {
		return // not a log line, such as a panic; the log file keeps it
	}
	switch line.Msg {
	case "job started":
		d.add(func(h *history) {
			h.starts = append(h.starts, start{
				job: line.JobID, message: line.MessageID, vm: vm, fraction: line.ResumedAt, at: line.Time,
			})
		})
	case "range hashed":
		d.add(func(h *history) {
			h.ranges = append(h.ranges, hashedRange{job: line.JobID, vm: vm, offset: line.Offset, bytes: line.Bytes, at: line.Time})
		})
	case "state changed":
		if line.To == lifecycle.Shutdown.String() {
			d.drained(vm, func(d *drain) { d.stopped = line.Time })
		}
	case "drained":
		d.drained(vm, func(d *drain) { d.ended, d.sinceNotice = line.Time, line.SinceNotice })
	}
	if kind := endKinds[line.Msg]; kind != 0 {
		d.add(func(h *history) {
			h.ends = append(h.ends, deliveryEnd{
				job: line.JobID, message: line.MessageID, vm: vm, kind: kind, reason: line.Reason, at: line.Time,
			})
		})
	}
}

func (d *demo) drained(vm string, change func(*drain)) {
	d.add(func(h *history) {
		drain := h.drains[vm]
		change(&drain)
		h.drains[vm] = drain
	})
}
