package worker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
)

// Acknowledge says whose business it is to let an event go ahead before its
// time. An acknowledgement counts for every VM that the event names.
type Acknowledge string

const (
	// AcknowledgeSelf acknowledges events that name this VM alone.
	AcknowledgeSelf Acknowledge = "self"

	// AcknowledgeLeader acknowledges those too that name several VMs, if this one
	// comes first among them, once the workers of all are ready.
	AcknowledgeLeader Acknowledge = "leader"

	// AcknowledgeNever leaves every event to its NotBefore, or to others.
	AcknowledgeNever Acknowledge = "never"
)

// Validate says what is wrong, or returns nil.
func (a Acknowledge) Validate() error {
	switch a {
	case AcknowledgeSelf, AcknowledgeLeader, AcknowledgeNever:
		return nil
	default:
		return fmt.Errorf("acknowledge %q: want %s, %s or %s", string(a), AcknowledgeSelf, AcknowledgeLeader, AcknowledgeNever)
	}
}

// allows reports whether it is the business of the VM self to acknowledge e.
func (a Acknowledge) allows(e preempt.Event, self preempt.Identity) bool {
	if e.ID == "" || !e.Names(self) {
		return false
	}
	switch a {
	case AcknowledgeSelf:
		return namesAlone(e, self)
	case AcknowledgeLeader:
		return strings.EqualFold(e.Resources[0], self.Name)
	default:
		return false
	}
}

// namesAlone reports whether e is about no other VM than self.
func namesAlone(e preempt.Event, self preempt.Identity) bool {
	return !slices.ContainsFunc(e.Resources, func(vm string) bool { return !strings.EqualFold(vm, self.Name) })
}

// ready reports whether what has to come before an acknowledgement is done.
// Nothing is acknowledged while a drain is under way: what the event does to the
// VM could keep a job from being handed over.
func ready(after preempt.Action, p lifecycle.Position, saved bool) bool {
	drained := p.Facts.Has(lifecycle.WorkReleased)
	switch {
	case p.State == lifecycle.Shutdown && !drained:
		return false
	case after >= preempt.DrainBy:
		return p.State == lifecycle.Shutdown && drained
	case after == preempt.CheckpointNow:
		return saved
	default:
		return true
	}
}
