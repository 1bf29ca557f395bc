package imds

import (
	"slices"
	"time"
)

// Answer is what became of a request, for whoever watches.
type Answer struct {
	Request

	// Sent is when the answer left.
	Sent time.Time

	// Status is the HTTP status, and Problem the error text of a refusal.
	Status  int
	Problem string

	// Faulty says that a [Fault] stands in place of the service's own answer.
	Faulty bool

	// Shown holds the events of the document that was served, as they stood.
	Shown []Event

	// Approved holds the ids of the events that the request let go ahead.
	Approved []string
}

// tell notes what is shown to the VM, and tells whoever watches.
func (g *Guest) tell(r Request, answer reply) {
	now := time.Now()
	g.server.mu.Lock()
	g.noteServed(answer.shows, now)
	onAnswer := g.server.onAnswer
	g.server.mu.Unlock()
	if onAnswer == nil {
		return
	}
	onAnswer(Answer{
		Request: r, Sent: now, Status: answer.status, Problem: answer.problem, Faulty: answer.faulty,
		Shown: slices.Clone(answer.shows), Approved: slices.Clone(answer.approves),
	})
}
