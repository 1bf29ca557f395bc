package queues

import (
	"bytes"
	"encoding/xml"
	"math"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
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

func (s *Service) putMessage(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	delay, err := r.Seconds("visibilitytimeout", 0, 0, maxVisibility)
	if err != nil {
		return nil, err
	}
	ttl, err := messageTTL(r)
	if err != nil {
		return nil, err
	}
	if ttl > 0 && delay >= ttl {
		return nil, protocol.ErrInvalidQuery.Because("visibilitytimeout %s is not less than messagettl %s", delay, ttl)
	}
	text, err := messageText(r)
	if err != nil {
		return nil, err
	}
	m := q.put(r.Now, text, delay, ttl)
	doc := protocol.NewXML("QueueMessagesList")
	doc.Open("QueueMessage")
	writeIdentity(doc, &m)
	writeReceipt(doc, &m)
	doc.Close("QueueMessage")
	doc.Close("QueueMessagesList")
	p := protocol.NewXMLReply(doc)
	p.Status = http.StatusCreated
	p.MessageIDs = []string{m.id}
	return p, nil
}

// messageTTL reads messagettl: -1 for ever, returned as 0, or from 1 s on.
func messageTTL(r *protocol.Request) (time.Duration, error) {
	n, err := r.Number("messagettl", int64(defaultTTL/time.Second), math.MinInt64, math.MaxInt64)
	switch {
	case err != nil:
		return 0, err
	case n == -1:
		return 0, nil
	case n < 1:
		return 0, protocol.ErrInvalidQuery.Because("messagettl is %d, must be -1 or at least 1", n)
	case n > math.MaxInt64/int64(time.Second):
		return 0, nil // beyond any clock
	}
	return time.Duration(n) * time.Second, nil
}

func (s *Service) getMessages(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	n, err := r.Number("numofmessages", 1, 1, maxMessages)
	if err != nil {
		return nil, err
	}
	hide, err := r.Seconds("visibilitytimeout", defaultVisibility, time.Second, maxVisibility)
	if err != nil {
		return nil, err
	}
	return messagesReply(q.get(r.Now, int(n), hide), true), nil
}

func (s *Service) peekMessages(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	n, err := r.Number("numofmessages", 1, 1, maxMessages)
	if err != nil {
		return nil, err
	}
	return messagesReply(q.peek(r.Now, int(n)), false), nil
}

// updateMessage sets a message's visibility, and its text where the request
// has a body.
func (s *Service) updateMessage(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	receipt := r.Query.Get("popreceipt")
	if receipt == "" || !r.Query.Has("visibilitytimeout") {
		return nil, protocol.ErrMissingQuery.Because("popreceipt and visibilitytimeout")
	}
	hide, err := r.Seconds("visibilitytimeout", 0, 0, maxVisibility)
	if err != nil {
		return nil, err
	}
	var replacement *string
	if len(r.Data) > 0 {
		text, err := messageText(r)
		if err != nil {
			return nil, err
		}
		replacement = &text
	}
	m, err := q.update(r.Now, r.MessageID(), receipt, replacement, hide)
	if err != nil {
		return nil, err
	}
	p := protocol.NewReply(http.StatusNoContent)
	p.Set("x-ms-popreceipt", m.receipt())
	p.SetTime("x-ms-time-next-visible", m.visible)
	return p, nil
}

func (s *Service) deleteMessage(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	receipt := r.Query.Get("popreceipt")
	if receipt == "" {
		return nil, protocol.ErrMissingQuery.Because("popreceipt")
	}
	if err := q.delete(r.Now, r.MessageID(), receipt); err != nil {
		return nil, err
	}
	return protocol.NewReply(http.StatusNoContent), nil
}

func (s *Service) clearMessages(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	q.clear()
	return protocol.NewReply(http.StatusNoContent), nil
}

// Around the text in the bodies that clients send.
const (
	messageTextOpen  = "<MessageText>"
	messageTextClose = "</MessageText>"
)

// messageText reads the text out of
// <QueueMessage><MessageText>…</MessageText></QueueMessage>. XML that is not
// well-formed, or that has characters which XML cannot hold, is refused.
func messageText(r *protocol.Request) (string, error) {
	text, err := parseMessageText(r.Data)
	if err != nil {
		return "", protocol.ErrInvalidXML.Because("%v", err)
	}
	if len(text) > maxMessageText {
		return "", protocol.ErrBodyTooLarge.Because("the message has %d bytes, at most %d", len(text), maxMessageText)
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
	if err := xml.Unmarshal(body, &doc); err != nil {
		return "", err
	}
	if doc.Text == nil {
		return "", protocol.ErrInvalidXML.Because("no MessageText")
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
	return text, protocol.PlainXML(text)
}

// messagesReply lists messages, with pop receipts for a Get Messages.
func messagesReply(messages []message, handedOut bool) *protocol.Reply {
	doc := protocol.NewXML("QueueMessagesList")
	var ids []string
	for i := range messages {
		m := &messages[i]
		ids = append(ids, m.id)
		doc.Open("QueueMessage")
		writeIdentity(doc, m)
		if handedOut {
			writeReceipt(doc, m)
		}
		doc.Number("DequeueCount", m.dequeues)
		doc.Text("MessageText", m.text)
		doc.Close("QueueMessage")
	}
	doc.Close("QueueMessagesList")
	p := protocol.NewXMLReply(doc)
	p.MessageIDs = ids
	return p
}

func writeIdentity(doc *protocol.XML, m *message) {
	doc.Text("MessageId", m.id)
	doc.Time("InsertionTime", m.inserted)
	expires := m.expires
	if expires.IsZero() || expires.After(never) {
		expires = never
	}
	doc.Time("ExpirationTime", expires)
}

func writeReceipt(doc *protocol.XML, m *message) {
	doc.Text("PopReceipt", m.receipt())
	doc.Time("TimeNextVisible", m.visible)
}
