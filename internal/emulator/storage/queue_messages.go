package storage

import (
	"math"
	"net/http"
	"time"
)

// Limits of messages, from "Put Message", "Get Messages" and "Update Message"
// in the REST documentation.
const (
	maxMessageText    = 64 << 10 // bytes of UTF-8
	maxMessages       = 32       // in one get or peek
	maxVisibility     = 7 * 24 * time.Hour
	defaultVisibility = 30 * time.Second
	defaultTTL        = 7 * 24 * time.Hour
)

// never is how the service writes the expiry of a message that has none.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func (s *queueService) putMessage(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	delay, err := r.seconds("visibilitytimeout", 0, 0, maxVisibility)
	if err != nil {
		return nil, err
	}
	ttl, err := messageTTL(r)
	if err != nil {
		return nil, err
	}
	if ttl > 0 && delay >= ttl {
		return nil, errInvalidQuery.because("visibilitytimeout %s is not less than messagettl %s", delay, ttl)
	}
	text, err := messageText(r)
	if err != nil {
		return nil, err
	}
	m := q.put(r.now, text, delay, ttl)
	doc := newXML("QueueMessagesList")
	doc.open("QueueMessage")
	writeIdentity(doc, &m)
	writeReceipt(doc, &m)
	doc.close("QueueMessage")
	doc.close("QueueMessagesList")
	p := xmlReply(doc)
	p.status = http.StatusCreated
	p.messageIDs = []string{m.id}
	return p, nil
}

// messageTTL reads messagettl: -1 for ever, returned as 0, or from 1 s on.
func messageTTL(r *request) (time.Duration, error) {
	n, err := r.number("messagettl", int64(defaultTTL/time.Second), math.MinInt64, math.MaxInt64)
	switch {
	case err != nil:
		return 0, err
	case n == -1:
		return 0, nil
	case n < 1:
		return 0, errInvalidQuery.because("messagettl is %d, must be -1 or at least 1", n)
	case n > math.MaxInt64/int64(time.Second):
		return 0, nil // beyond any clock
	}
	return time.Duration(n) * time.Second, nil
}

func (s *queueService) getMessages(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	n, err := r.number("numofmessages", 1, 1, maxMessages)
	if err != nil {
		return nil, err
	}
	hide, err := r.seconds("visibilitytimeout", defaultVisibility, time.Second, maxVisibility)
	if err != nil {
		return nil, err
	}
	return messagesReply(q.get(r.now, int(n), hide), true), nil
}

func (s *queueService) peekMessages(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	n, err := r.number("numofmessages", 1, 1, maxMessages)
	if err != nil {
		return nil, err
	}
	return messagesReply(q.peek(r.now, int(n)), false), nil
}

// updateMessage sets a message's visibility, and its text where the request
// has a body.
func (s *queueService) updateMessage(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	receipt := r.query.Get("popreceipt")
	if receipt == "" || !r.query.Has("visibilitytimeout") {
		return nil, errMissingQuery.because("popreceipt and visibilitytimeout")
	}
	hide, err := r.seconds("visibilitytimeout", 0, 0, maxVisibility)
	if err != nil {
		return nil, err
	}
	var replacement *string
	if len(r.body) > 0 {
		text, err := messageText(r)
		if err != nil {
			return nil, err
		}
		replacement = &text
	}
	m, err := q.update(r.now, r.messageID(), receipt, replacement, hide)
	if err != nil {
		return nil, err
	}
	p := newReply(http.StatusNoContent)
	p.set("x-ms-popreceipt", m.receipt())
	p.setTime("x-ms-time-next-visible", m.visible)
	return p, nil
}

func (s *queueService) deleteMessage(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	receipt := r.query.Get("popreceipt")
	if receipt == "" {
		return nil, errMissingQuery.because("popreceipt")
	}
	if err := q.delete(r.now, r.messageID(), receipt); err != nil {
		return nil, err
	}
	return newReply(http.StatusNoContent), nil
}

func (s *queueService) clearMessages(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	q.clear()
	return newReply(http.StatusNoContent), nil
}
