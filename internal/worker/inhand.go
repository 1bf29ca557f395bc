package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// inHand is the set of jobs that are being worked on. An id may be in hand
// twice, when a duplicate arrives.
type inHand struct {
	mu     sync.Mutex
	ids    map[string]int
	starts map[string][]*hold // deliveries of an id; the first may start its handler
}

// add takes a job in hand and returns what lets go of it.
func (h *inHand) add(id string) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]int{}
	}
	h.ids[id]++
	return func() { h.remove(id) }
}

func (h *inHand) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids[id]--; h.ids[id] <= 0 {
		delete(h.ids, id)
	}
}

// start asks for the right to start the handler of an id, which one delivery of
// this worker has at a time. The caller leaves in the end.
func (h *inHand) start(id string) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.starts == nil {
		h.starts = map[string][]*hold{}
	}
	t := &hold{of: h, id: id, come: make(chan struct{}), position: len(h.starts[id])}
	if t.position == 0 {
		close(t.come)
	}
	h.starts[id] = append(h.starts[id], t)
	return t
}

// hold is the right to start the handler of an id, or the place in the line for it.
type hold struct {
	of       *inHand
	id       string
	come     chan struct{} // closed when the turn has come
	position int           // in the line, when it was joined
}

// first reports whether there was no other delivery of the id.
func (t *hold) first() bool { return t.position == 0 }

// wait waits for the turn, and reports whether it came in time. Only one delivery
// of an id waits, so that many duplicates do not fill the worker's slots.
func (t *hold) wait(ctx context.Context, atMost time.Duration) bool {
	if t.position > 1 {
		return isClosed(t.come)
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-t.come:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// leave gives the turn to the next in line. It may be called more than once.
func (t *hold) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	line := slices.DeleteFunc(t.of.starts[t.id], func(other *hold) bool { return other == t })
	t.of.starts[t.id] = line
	if len(line) == 0 {
		delete(t.of.starts, t.id)
	} else if !isClosed(line[0].come) {
		close(line[0].come)
	}
}

// list returns the ids in order.
func (h *inHand) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, 0, len(h.ids))
	for id := range h.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// held is the set of messages in hand, by their ids.
type held struct {
	mu     sync.Mutex
	leases map[string]*queue.Lease
}

func (h *held) add(lease *queue.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases = map[string]*queue.Lease{}
	}
	h.leases[lease.ID] = lease
}

// remove takes a message off, before its last call: a later claim is then a
// delivery of its own.
func (h *held) remove(lease *queue.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases[lease.ID] == lease {
		delete(h.leases, lease.ID)
	}
}

// adopt reports whether the message of a new claim is in hand already, because
// its visibility ran out while storage could not be reached. The delivery that
// has it goes on under the new claim, rather than being fenced by its own worker.
func (h *held) adopt(later *queue.Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lease, ok := h.leases[later.ID]
	if ok {
		lease.Adopt(later)
	}
	return ok
}
