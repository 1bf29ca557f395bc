package queues

import (
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// queue is one queue. The backlog is a list, so the cost of a call does not depend on
// its length: only, with a logarithm, on how many messages are hidden or expire.
type queue struct {
	mu       sync.Mutex
	metadata map[string]string
	messages map[string]*message // by id
	ready    messageList         // the visible ones, in the order of becoming so
	hidden   messageHeap         // the others, by when they become visible
	expiries messageHeap         // expiring messages, by their time
	tickets  uint64
}

// message is one message of a queue. It is either ready or hidden, and in
// expiries besides if it expires.
type message struct {
	id       string
	text     string
	inserted time.Time
	expires  time.Time // zero: never
	visible  time.Time // not handed out before
	ticket   uint64    // of the last put, get or update: never repeats in a queue
	dequeues int64
	slots    [2]int // positions in hidden and expiries, or nowhere
	links    links  // neighbours in ready
}

func newQueue(metadata map[string]string) *queue {
	return &queue{
		metadata: metadata,
		messages: make(map[string]*message),
		hidden:   messageHeap{slot: 0, before: soonerVisible},
		expiries: messageHeap{slot: 1, before: soonerExpired},
	}
}

// soonerVisible orders by visibility, and messages that become visible at the
// same instant by their last change: a message that is released goes behind
// the backlog that is visible already.
func soonerVisible(a, b *message) bool {
	if c := a.visible.Compare(b.visible); c != 0 {
		return c < 0
	}
	return a.ticket < b.ticket
}

func soonerExpired(a, b *message) bool { return a.expires.Before(b.expires) }

// receipt is the pop receipt that goes with the message's last change. The
// ticket is scrambled, so that receipts need URL-escaping as often as the
// service's do.
func (m *message) receipt() string {
	const oddMultiplier = 0x9E3779B97F4A7C15 // a bijection on 64 bits
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], m.ticket*oddMultiplier)
	return base64.StdEncoding.EncodeToString(b[:])
}

// settle brings the queue up to date: it removes expired messages and makes those
// visible whose visibility timeout has passed. Every operation begins with it.
func (q *queue) settle(now time.Time) {
	for m := q.expiries.first(); m != nil && !m.expires.After(now); m = q.expiries.first() {
		q.remove(m)
	}
	for m := q.hidden.first(); m != nil && !m.visible.After(now); m = q.hidden.first() {
		q.hidden.remove(m)
		q.ready.add(m)
	}
}

func (q *queue) remove(m *message) {
	delete(q.messages, m.id)
	q.unschedule(m)
	if m.slots[q.expiries.slot] != nowhere {
		q.expiries.remove(m)
	}
}

// schedule gives a message that is neither ready nor hidden a new receipt and
// a time of visibility.
func (q *queue) schedule(m *message, now time.Time, hide time.Duration) {
	q.tickets++
	m.ticket = q.tickets
	m.visible = now.Add(hide)
	if hide > 0 {
		q.hidden.push(m)
	} else {
		q.ready.add(m)
	}
}

// unschedule removes a message from the ready list or the hidden heap.
func (q *queue) unschedule(m *message) {
	if m.slots[q.hidden.slot] != nowhere {
		q.hidden.remove(m)
	} else {
		q.ready.remove(m)
	}
}

// put adds a message; ttl 0 means that it never expires.
func (q *queue) put(now time.Time, text string, delay, ttl time.Duration) message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	m := &message{id: uuid.NewString(), text: text, inserted: now, slots: [2]int{nowhere, nowhere}}
	q.messages[m.id] = m
	q.schedule(m, now, delay)
	if ttl > 0 {
		m.expires = now.Add(ttl)
		q.expiries.push(m)
	}
	return *m
}

// get returns up to n visible messages and hides them for a time, which must not be
// 0.
func (q *queue) get(now time.Time, n int, hide time.Duration) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	var out []message
	for m := q.ready.first; m != nil && len(out) < n; m = q.ready.first {
		m.dequeues++
		q.unschedule(m)
		q.schedule(m, now, hide)
		out = append(out, *m)
	}
	return out
}

// peek returns up to n visible messages and leaves them as they are.
func (q *queue) peek(now time.Time, n int) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	var out []message
	for m := q.ready.first; m != nil && len(out) < n; m = m.links.next {
		out = append(out, *m)
	}
	return out
}

// update sets a message's visibility, and its text unless that is nil, and
// gives it a new receipt.
func (q *queue) update(now time.Time, id, receipt string, text *string, hide time.Duration) (message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.held(now, id, receipt)
	if err != nil {
		return message{}, err
	}
	if text != nil {
		m.text = *text
	}
	q.unschedule(m)
	q.schedule(m, now, hide)
	return *m, nil
}

// delete removes a message.
func (q *queue) delete(now time.Time, id, receipt string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, err := q.held(now, id, receipt)
	if err != nil {
		return err
	}
	q.remove(m)
	return nil
}

// held finds a message by its current receipt. A receipt stays good after the
// visibility timeout has passed, until another client gets the message.
func (q *queue) held(now time.Time, id, receipt string) (*message, error) {
	q.settle(now)
	m := q.messages[id]
	if m == nil {
		return nil, errMessageNotFound
	}
	if m.receipt() != receipt {
		return nil, errReceiptMismatch
	}
	return m, nil
}

// clear removes all messages.
func (q *queue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.messages)
	q.ready, q.hidden.items, q.expiries.items = messageList{}, nil, nil
}

// count is the number of messages, invisible ones included.
func (q *queue) count(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	return len(q.messages)
}

// Len, Less, Swap, Push and Pop are for container/heap only.
