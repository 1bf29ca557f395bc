package storage

import (
	"bytes"
	"encoding/xml"
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

// Around the text in the bodies that clients send.
const (
	messageTextOpen  = "<MessageText>"
	messageTextClose = "</MessageText>"
)

// messageText reads the text out of
// <QueueMessage><MessageText>…</MessageText></QueueMessage>. XML that is not
// well-formed, or that has characters which XML cannot hold, is refused.
func messageText(r *request) (string, error) {
	text, err := parseMessageText(r.body)
	if err != nil {
		return "", errInvalidXML.because("%v", err)
	}
	if len(text) > maxMessageText {
		return "", errBodyTooLarge.because("the message has %d bytes, at most %d", len(text), maxMessageText)
	}
	return text, nil
}

func parseMessageText(body []byte) (string, error) {
	if text, ok := plainMessageText(body); ok {
		return text, nil
	}
	var doc struct {
		XMLName xml.Name `xml:"QueueMessage"`
		Text    *string  `xml:"MessageText"`
	}
	if err := xml.Unmarshal(body, &doc); err != nil { //nolint:gosec // decoding clients' XML is the task
		return "", err
	}
	if doc.Text == nil {
		return "", errInvalidXML.because("no MessageText")
	}
	return *doc.Text, nil
}

// plainMessageText is the fast path for the common body: only the two elements, and a
// text that needs no unescaping, such as base64.
func plainMessageText(body []byte) (string, bool) {
	body = bytes.TrimPrefix(body, []byte(xml.Header))
	body, opened := bytes.CutPrefix(body, []byte("<QueueMessage>"+messageTextOpen))
	body, closed := bytes.CutSuffix(body, []byte(messageTextClose+"</QueueMessage>"))
	if !opened || !closed {
		return "", false
	}
	text := string(body)
	return text, plainXML(text)
}

// messagesReply lists messages, with pop receipts for a Get Messages.
func messagesReply(messages []message, handedOut bool) *reply {
	doc := newXML("QueueMessagesList")
	var ids []string
	for i := range messages {
		m := &messages[i]
		ids = append(ids, m.id)
		doc.open("QueueMessage")
		writeIdentity(doc, m)
		if handedOut {
			writeReceipt(doc, m)
		}
		doc.number("DequeueCount", m.dequeues)
		doc.text("MessageText", m.text)
		doc.close("QueueMessage")
	}
	doc.close("QueueMessagesList")
	p := xmlReply(doc)
	p.messageIDs = ids
	return p
}

func writeIdentity(doc *xmlDoc, m *message) {
	doc.text("MessageId", m.id)
	doc.time("InsertionTime", m.inserted)
	expires := m.expires
	if expires.IsZero() || expires.After(never) {
		expires = never
	}
	doc.time("ExpirationTime", expires)
}

func writeReceipt(doc *xmlDoc, m *message) {
	doc.text("PopReceipt", m.receipt())
	doc.time("TimeNextVisible", m.visible)
}
