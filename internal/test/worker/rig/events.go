package rig

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// Announce schedules an event for vm_0 and returns its id.
func (b *Bed) Announce(kind string, change ...func(*imds.Event)) string {
	e := imds.Event{Type: kind, Resources: []string{"vm_0"}, Duration: -time.Second}
	for _, f := range change {
		f(&e)
	}
	return b.Metadata.Schedule(e)
}

// In has an event begin so long after its announcement.
func In(d time.Duration) func(*imds.Event) {
	return func(e *imds.Event) { e.NotBefore = time.Now().Add(d) }
}

// Lasting gives an event a duration.
func Lasting(d time.Duration) func(*imds.Event) { return func(e *imds.Event) { e.Duration = d } }

// ByUser changes an event to a person's request.
func ByUser(e *imds.Event) { e.Source = "User" }

// Hidden returns how many messages are claimed.
func (b *Bed) Hidden() (n int) {
	for _, m := range b.Server.Messages(b.Names.Queue) {
		if !m.Visible {
			n++
		}
	}
	return n
}

// PutSteps enqueues n jobs of the kind steps: job-0, job-1 and so on.
func (b *Bed) PutSteps(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("job-%d", i))
		b.Put(ids[i], "steps", "")
	}
	return ids
}

// OnAcknowledge calls f for every acknowledgement before the service handles it.
func (b *Bed) OnAcknowledge(f func()) {
	b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
		if r.Method == http.MethodPost {
			f()
		}
		return imds.Fault{}
	})
}
