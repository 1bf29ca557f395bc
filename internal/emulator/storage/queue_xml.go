package storage

import (
	"bytes"
	"encoding/xml"
)

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

// plainMessageText is the short way for the common body: nothing but the two
// elements, and a text that needs no unescaping, such as base64.
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

// messagesReply lists messages, with receipts for those who may keep them.
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
