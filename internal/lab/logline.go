package lab

import (
	"encoding/json"
	"time"
)

// logLine holds what the ledger takes from a worker's log.
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
	To          string  `json:"to"` // of a change of state
}

// closingKinds are the log's words for how a delivery ended that its worker did
// not complete.
var closingKinds = map[string]closingKind{
	"message put back":                         putBack,
	"message deleted: its job is over already": overdone,
	"delivery dropped":                         dropped,
	"message moved to the poison queue":        poisoned,
}

// OnLine is the fleet's hook of that name: what a worker says of itself. Lines
// of no use to the ledger are passed over.
func (l *Ledger) OnLine(vm string, raw []byte) {
	var line logLine
	if json.Unmarshal(raw, &line) != nil {
		return // not a line of the log: a runtime's last words, for the log file
	}
	switch line.Msg {
	case "job started":
		l.add(func(f *facts) {
			f.starts = append(f.starts, start{
				job: line.JobID, message: line.MessageID, vm: vm, fraction: line.ResumedAt, at: line.Time,
			})
		})
	case "range hashed":
		l.add(func(f *facts) {
			f.spans = append(f.spans, span{job: line.JobID, vm: vm, offset: line.Offset, bytes: line.Bytes, at: line.Time})
		})
	case "work stopped":
		l.halted(vm, func(h *halt) { h.stopped = line.Time })
	case "drained":
		l.halted(vm, func(h *halt) { h.drained, h.sinceNotice = line.Time, line.SinceNotice })
	case "state changed":
		l.add(func(f *facts) { f.states[vm] = line.To })
	}
	if kind := closingKinds[line.Msg]; kind != 0 {
		l.add(func(f *facts) {
			f.closings = append(f.closings, closing{
				job: line.JobID, message: line.MessageID, vm: vm, kind: kind, reason: line.Reason, at: line.Time,
			})
		})
	}
}

func (l *Ledger) halted(vm string, note func(*halt)) {
	l.add(func(f *facts) {
		h := f.halts[vm]
		note(&h)
		f.halts[vm] = h
	})
}
