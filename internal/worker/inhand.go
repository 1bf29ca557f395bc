package worker

import (
	"slices"
	"sync"

	"github.com/spotworker/spotworker/internal/queue"
)

// inHand is the set of jobs that are being worked on. An id may be in hand
// twice, when a duplicate arrives.
type inHand struct {
	mu  sync.Mutex
	ids map[string]int
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
