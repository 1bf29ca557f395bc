package lifecycle

import (
	"errors"
	"fmt"
)

// ErrRefused is returned, wrapped, for an event that the table does not have
// in the position it met. Two goroutines that report at the same moment cause
// it in normal operation: a goroutine that ends warm-up just as a notice arrives finds
// its Warm refused, because the worker is in Shutdown by then. The position stays
// as it was.
var ErrRefused = errors.New("event refused")

// rule is one row of the table: on an event in a state, where all facts in has
// and none in lacks hold (as they stood before the event), the state becomes
// to.
type rule struct {
	from       State
	on         Event
	has, lacks Facts
	to         State
	meaning    string
}

// rules is the whole table. For every position and event at most one rule
// fits, and none of them is out of reach; a test checks both.
var rules = []rule{
	{from: Start, on: Warm, to: Recover, meaning: "warm-up is complete"},
	{from: Start, on: Notice, to: Shutdown, meaning: "the VM was announced to go before it was warm"},
	{from: Start, on: Hold, to: Shutdown, meaning: "an operator drained it before it was warm"},
	{from: Start, on: Terminate, to: Shutdown, meaning: "asked to end before it was warm"},

	{from: Recover, on: Known, to: Resume, meaning: "the past and the announced events are known"},
	{from: Recover, on: Notice, to: Shutdown, meaning: "an event was announced already, or comes now"},
	{from: Recover, on: Hold, to: Shutdown, meaning: "an operator drains it"},
	{from: Recover, on: Terminate, to: Shutdown, meaning: "asked to end before it took work"},

	{from: Resume, on: Ready, to: Process, meaning: "healthy, and ready to take work"},
	{from: Resume, on: Notice, to: Shutdown, meaning: "the VM was announced to go before it took work"},
	{from: Resume, on: Hold, to: Shutdown, meaning: "an operator drains it"},
	{from: Resume, on: Terminate, to: Shutdown, meaning: "asked to end before it took work"},

	{from: Process, on: Notice, to: Shutdown, meaning: "jobs are to be handed over now"},
	{from: Process, on: Hold, to: Shutdown, meaning: "an operator drains it; jobs are handed over"},
	{from: Process, on: Terminate, to: Shutdown, meaning: "asked to end; jobs are handed over first"},

	{from: Shutdown, on: Notice, to: Shutdown, meaning: "one more announcement: nothing changes but what a withdrawal has to undo"},
	{from: Shutdown, on: Hold, to: Shutdown, meaning: "an operator drains it as well: only what has to be undone changes"},
	{from: Shutdown, on: Terminate, lacks: WorkReleased, to: Shutdown, meaning: "asked to end; the drain continues"},
	{from: Shutdown, on: Terminate, has: WorkReleased, to: Stopped, meaning: "nothing is left to do"},

	{from: Shutdown, on: Drained, has: EndRequested, to: Stopped, meaning: "nothing is left to do"},
	{from: Shutdown, on: Drained, has: EventStands, lacks: EndRequested, to: Shutdown, meaning: "wait for the end of the VM"},
	{from: Shutdown, on: Drained, has: Held, lacks: EventStands | EndRequested, to: Shutdown, meaning: "idle until an operator resumes it"},
	{from: Shutdown, on: Drained, has: WasWarm, lacks: EventStands | Held | EndRequested, to: Recover,
		meaning: "the event was withdrawn, or the hold, during the drain: back to work"},
	{from: Shutdown, on: Drained, lacks: WasWarm | EventStands | Held | EndRequested, to: Start,
		meaning: "the event was withdrawn, or the hold, during the drain: warm up after all"},

	{from: Shutdown, on: Withdrawn, has: EventStands, lacks: WorkReleased, to: Shutdown, meaning: "finish the drain first"},
	{from: Shutdown, on: Withdrawn, has: EventStands | WorkReleased | Held, to: Shutdown,
		meaning: "the VM stays; idle until an operator resumes it"},
	{from: Shutdown, on: Withdrawn, has: EventStands | WorkReleased | WasWarm, lacks: Held, to: Recover,
		meaning: "the VM stays: back to work"},
	{from: Shutdown, on: Withdrawn, has: EventStands | WorkReleased, lacks: WasWarm | Held, to: Start,
		meaning: "the VM stays: warm up after all"},

	{from: Shutdown, on: Unhold, has: Held, lacks: WorkReleased, to: Shutdown, meaning: "finish the drain first"},
	{from: Shutdown, on: Unhold, has: Held | WorkReleased | EventStands, to: Shutdown, meaning: "wait for the end of the VM"},
	{from: Shutdown, on: Unhold, has: Held | WorkReleased | WasWarm, lacks: EventStands, to: Recover, meaning: "resumed: back to work"},
	{from: Shutdown, on: Unhold, has: Held | WorkReleased, lacks: WasWarm | EventStands, to: Start, meaning: "resumed: warm up after all"},
}

// Next returns the position that follows from p when e happens. It returns p
// and an error that wraps [ErrRefused] where the table has no such step.
func Next(p Position, e Event) (Position, error) {
	for _, r := range rules {
		if r.fits(p, e) {
			return Position{State: r.to, Facts: p.Facts.after(e) & keeps(r.to)}, nil
		}
	}
	return p, fmt.Errorf("%w: %s while in %s", ErrRefused, e, p)
}

// fits reports whether r is the rule for e in p.
func (r rule) fits(p Position, e Event) bool {
	return r.from == p.State && r.on == e && p.Facts.Has(r.has) && p.Facts&r.lacks == 0
}

// keeps returns the facts that count in s. Once Shutdown is left for work,
// nothing of it counts any more.
func keeps(s State) Facts {
	if s == Shutdown || s == Stopped {
		return WasWarm | EventStands | EndRequested | WorkReleased | Held
	}
	return WasWarm
}
