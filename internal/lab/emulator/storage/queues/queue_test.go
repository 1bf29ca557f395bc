package queues

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

// modelMessage is a message of the model: a slice, and nothing clever.
type modelMessage struct {
	id, receipt      string
	expires, visible time.Time
	order            int // of the last change
	dequeues         int64
}

// queueModel does what queue does by looking at every message.
type queueModel struct {
	messages []*modelMessage
	changes  int
}

func (q *queueModel) expire(now time.Time) {
	q.messages = slices.DeleteFunc(q.messages, func(m *modelMessage) bool {
		return !m.expires.IsZero() && !m.expires.After(now)
	})
}

// visible returns up to n visible messages in the order of the queue.
func (q *queueModel) visible(now time.Time, n int) []*modelMessage {
	var out []*modelMessage
	for _, m := range q.messages {
		if !m.visible.After(now) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *modelMessage) int {
		if c := a.visible.Compare(b.visible); c != 0 {
			return c
		}
		return a.order - b.order
	})
	return out[:min(n, len(out))]
}

func (q *queueModel) touch(m *modelMessage, visible time.Time, receipt string) {
	q.changes++
	m.order, m.visible, m.receipt = q.changes, visible, receipt
}

func (q *queueModel) find(id string) *modelMessage {
	for _, m := range q.messages {
		if m.id == id {
			return m
		}
	}
	return nil
}

// queuePair is a queue and its model, and the receipts given out so far.
type queuePair struct {
	real     *queue
	model    *queueModel
	now      time.Time
	receipts [][2]string // message id, receipt
}

func seconds(t *rapid.T, least, most int, label string) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Second
}

func (p *queuePair) put(t *rapid.T) {
	delay, ttl := seconds(t, 0, 5, "delay"), seconds(t, 0, 20, "ttl")
	m := p.real.put(p.now, "text", delay, ttl)
	mm := &modelMessage{id: m.id}
	if ttl > 0 {
		mm.expires = p.now.Add(ttl)
	}
	p.model.expire(p.now)
	p.model.touch(mm, p.now.Add(delay), m.receipt())
	p.model.messages = append(p.model.messages, mm)
	p.receipts = append(p.receipts, [2]string{m.id, m.receipt()})
}

func (p *queuePair) get(t *rapid.T) {
	n, hide := rapid.IntRange(1, 32).Draw(t, "n"), seconds(t, 1, 10, "hide")
	p.model.expire(p.now)
	want := p.model.visible(p.now, n)
	got := p.real.get(p.now, n, hide)
	if len(got) != len(want) {
		t.Fatalf("get gave %d messages, want %d", len(got), len(want))
	}
	for i, m := range got {
		want[i].dequeues++
		if m.id != want[i].id || m.dequeues != want[i].dequeues {
			t.Fatalf("get gave %s with count %d at %d, want %s with %d", m.id, m.dequeues, i, want[i].id, want[i].dequeues)
		}
		p.model.touch(want[i], p.now.Add(hide), m.receipt())
		p.receipts = append(p.receipts, [2]string{m.id, m.receipt()})
	}
}

func (p *queuePair) peek(t *rapid.T) {
	n := rapid.IntRange(1, 32).Draw(t, "n")
	p.model.expire(p.now)
	want := p.model.visible(p.now, n)
	got := p.real.peek(p.now, n)
	if len(got) != len(want) {
		t.Fatalf("peek gave %d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].id != want[i].id {
			t.Fatalf("peek gave %s at %d, want %s", got[i].id, i, want[i].id)
		}
	}
}

// wantError is the required error of an update or delete with a receipt.
func (p *queuePair) wantError(id, receipt string) error {
	p.model.expire(p.now)
	m := p.model.find(id)
	switch {
	case m == nil:
		return errMessageNotFound
	case m.receipt != receipt:
		return errReceiptMismatch
	}
	return nil
}

func (p *queuePair) update(t *rapid.T) {
	if len(p.receipts) == 0 {
		t.Skip("no receipt yet")
	}
	held, hide := rapid.SampledFrom(p.receipts).Draw(t, "receipt"), seconds(t, 0, 10, "hide")
	want := p.wantError(held[0], held[1])
	m, err := p.real.update(p.now, held[0], held[1], nil, hide)
	if err != want { //nolint:errorlint // the very error
		t.Fatalf("update = %v, want %v", err, want)
	}
	if err == nil {
		p.model.touch(p.model.find(held[0]), p.now.Add(hide), m.receipt())
		p.receipts = append(p.receipts, [2]string{m.id, m.receipt()})
	}
}

func (p *queuePair) remove(t *rapid.T) {
	if len(p.receipts) == 0 {
		t.Skip("no receipt yet")
	}
	held := rapid.SampledFrom(p.receipts).Draw(t, "receipt")
	want := p.wantError(held[0], held[1])
	if err := p.real.delete(p.now, held[0], held[1]); err != want { //nolint:errorlint // the very error
		t.Fatalf("delete = %v, want %v", err, want)
	}
	if want == nil {
		p.model.messages = slices.DeleteFunc(p.model.messages, func(m *modelMessage) bool { return m.id == held[0] })
	}
}

func (p *queuePair) pass(t *rapid.T) { p.now = p.now.Add(seconds(t, 0, 12, "pass")) }

// check compares the invariants of every step.
func (p *queuePair) check(t *rapid.T) {
	p.model.expire(p.now)
	if got, want := p.real.count(p.now), len(p.model.messages); got != want {
		t.Fatalf("count = %d, want %d", got, want)
	}
	for _, h := range []*messageHeap{&p.real.hidden, &p.real.expiries} {
		for i, m := range h.items {
			if m.slots[h.slot] != i {
				t.Fatalf("message %s believes to be at %d of heap %d, and is at %d", m.id, m.slots[h.slot], h.slot, i)
			}
		}
	}
	ready := 0
	for m := p.real.ready.first; m != nil; m = m.links.next {
		ready++
		if m.slots[p.real.hidden.slot] != nowhere {
			t.Fatalf("message %s is both ready and hidden", m.id)
		}
	}
	if got, want := ready+p.real.hidden.Len(), len(p.model.messages); got != want {
		t.Fatalf("%d messages are ready or hidden, want %d", got, want)
	}
}

func TestQueueBehavesLikeItsModel(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		p := &queuePair{real: newQueue(nil), model: &queueModel{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		t.Repeat(map[string]func(*rapid.T){
			"put": p.put, "get": p.get, "peek": p.peek, "update": p.update, "delete": p.remove, "pass": p.pass, "": p.check,
		})
	})
}
