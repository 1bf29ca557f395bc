package storage

import (
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// queue is one queue. All its operations cost O(log n) in the number of
// messages, but for clear.
type queue struct {
	mu       sync.Mutex
	metadata map[string]string
	messages map[string]*message // by id
	schedule messageHeap         // all messages, by when they are visible
	expiries messageHeap         // those that expire, by when
	tickets  uint64
}

// message is one message of a queue, in both heaps at once.
type message struct {
	id       string
	text     string
	inserted time.Time
	expires  time.Time // zero: never
	visible  time.Time // not handed out before
	ticket   uint64    // of the last put, get or update: never repeats in a queue
	dequeues int64
	slots    [2]int // positions in schedule and expiries
}

func newQueue(metadata map[string]string) *queue {
	return &queue{
		metadata: metadata,
		messages: make(map[string]*message),
		schedule: messageHeap{slot: 0, before: soonerVisible},
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

// expire removes the messages whose time is over.
func (q *queue) expire(now time.Time) {
	for m := q.expiries.first(); m != nil && !m.expires.After(now); m = q.expiries.first() {
		q.remove(m)
	}
}

func (q *queue) remove(m *message) {
	delete(q.messages, m.id)
	q.schedule.remove(m)
	if !m.expires.IsZero() {
		q.expiries.remove(m)
	}
}

// touch gives a message a new receipt and a new time of visibility.
func (q *queue) touch(m *message, visible time.Time) {
	q.tickets++
	m.ticket = q.tickets
	m.visible = visible
	q.schedule.fix(m)
}

// put adds a message; ttl 0 means that it never expires.
func (q *queue) put(now time.Time, text string, delay, ttl time.Duration) message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	q.tickets++
	m := &message{id: uuid.NewString(), text: text, inserted: now, visible: now.Add(delay), ticket: q.tickets}
	q.messages[m.id] = m
	q.schedule.push(m)
	if ttl > 0 {
		m.expires = now.Add(ttl)
		q.expiries.push(m)
	}
	return *m
}

// get hands out up to n visible messages and hides them for a while.
func (q *queue) get(now time.Time, n int, hide time.Duration) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	var out []message
	for m := q.schedule.first(); m != nil && len(out) < n && !m.visible.After(now); m = q.schedule.first() {
		m.dequeues++
		q.touch(m, now.Add(hide))
		out = append(out, *m)
	}
	return out
}

// peek returns up to n visible messages and leaves them as they are.
func (q *queue) peek(now time.Time, n int) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	var out []message
	for _, m := range q.schedule.least(n) {
		if m.visible.After(now) {
			break
		}
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
	q.touch(m, now.Add(hide))
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
// visibility ran out, until somebody else gets the message.
func (q *queue) held(now time.Time, id, receipt string) (*message, error) {
	q.expire(now)
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
	q.schedule.items, q.expiries.items = nil, nil
}

// count is the number of messages, invisible ones included.
func (q *queue) count(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	return len(q.messages)
}
