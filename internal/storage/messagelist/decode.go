package messagelist

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

// scanner reads a document from its start. Once it meets something that it does not
// know, failed stays set.
type scanner struct {
	rest   string
	failed bool
}

// decode returns the messages of a list, or false for a document that is not exactly of
// the known form.
func decode(body []byte) ([]Message, bool) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	n := bytes.Count(body, []byte("<QueueMessage>"))
	s := scanner{rest: string(body)}
	s.declaration()
	s.space()
	if s.skip("<QueueMessagesList />") || s.skip("<QueueMessagesList/>") {
		return nil, s.ended()
	}
	s.expect("<QueueMessagesList>")
	messages := make([]Message, 0, n)
	for s.space(); s.skip("<QueueMessage>"); s.space() {
		messages = append(messages, s.message())
		if s.failed {
			return nil, false
		}
	}
	s.expect("</QueueMessagesList>")
	return messages, s.ended()
}

// declaration reads the XML declaration, if there is one.
func (s *scanner) declaration() {
	_ = slices.ContainsFunc([]string{
		`<?xml version="1.0" encoding="utf-8"?>`,
		`<?xml version="1.0" encoding="UTF-8"?>`,
		`<?xml version="1.0" encoding="utf-8" standalone="yes"?>`,
		`<?xml version="1.0" encoding="UTF-8" standalone="yes"?>`,
	}, s.skip)
}

// elements of a message. Each is required once.
const (
	hasID = 1 << iota
	hasInserted
	hasExpires
	hasReceipt
	hasNextVisible
	hasCount
	hasText

	hasAll = 1<<iota - 1
)

// message reads the elements of a message and its end tag.
func (s *scanner) message() Message {
	end := strings.Index(s.rest, "</QueueMessage>")
	if end < 0 {
		s.failed = true
		return Message{}
	}
	one := scanner{rest: s.rest[:end]}
	s.rest = s.rest[end+len("</QueueMessage>"):]
	var m Message
	seen := 0
	for one.space(); one.rest != "" && !one.failed; one.space() {
		seen = one.element(&m, seen)
	}
	if one.failed || seen != hasAll {
		s.failed = true
	}
	m.copyTexts()
	return m
}

// copyTexts makes the texts of a message parts of one copy of them, so that they keep
// neither tags nor other messages in memory.
func (m *Message) copyTexts() {
	all := m.ID + m.Receipt + m.Text
	id, receipt := len(m.ID), len(m.ID)+len(m.Receipt)
	m.ID, m.Receipt, m.Text = all[:id], all[id:receipt], all[receipt:]
}

// element reads one element of a message.
func (s *scanner) element(m *Message, seen int) int {
	name := s.startTag()
	text := s.text(name)
	bit := 0
	switch name {
	case "MessageId":
		bit, m.ID = hasID, text
	case "InsertionTime":
		bit, m.InsertedAt = hasInserted, s.time(text)
	case "ExpirationTime":
		bit, m.ExpiresAt = hasExpires, s.time(text)
	case "PopReceipt":
		bit, m.Receipt = hasReceipt, text
	case "TimeNextVisible":
		bit = hasNextVisible
		s.time(text)
	case "DequeueCount":
		bit, m.Deliveries = hasCount, s.number(text)
	case "MessageText":
		bit, m.Text = hasText, text
	}
	if bit == 0 || seen&bit != 0 {
		s.failed = true
	}
	return seen | bit
}

// startTag reads a start tag without attributes and returns its name.
func (s *scanner) startTag() string {
	end := strings.IndexByte(s.rest, '>')
	if end < 0 || s.rest[0] != '<' {
		s.failed = true
		return ""
	}
	name := s.rest[1:end]
	s.rest = s.rest[end+1:]
	return name
}

// text reads text up to the end tag of that name. It may have the printable ASCII
// characters that XML leaves as they are.
func (s *scanner) text(name string) string {
	if s.failed {
		return ""
	}
	end := strings.IndexByte(s.rest, '<')
	if end < 0 {
		s.failed = true
		return ""
	}
	text := s.rest[:end]
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '&' || c == '>' {
			s.failed = true
			return ""
		}
	}
	s.rest = s.rest[end:]
	s.expect("</")
	s.expect(name)
	s.expect(">")
	return text
}

// number reads a whole number of at most 18 digits.
func (s *scanner) number(text string) (n int64) {
	if text == "" || len(text) > 18 {
		s.failed = true
		return 0
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			s.failed = true
			return 0
		}
		n = 10*n + int64(text[i]-'0')
	}
	return n
}

const (
	layout = "Mon, 02 Jan 2006 15:04:05 GMT"
	days   = "SunMonTueWedThuFriSat"
	months = "JanFebMarAprMayJunJulAugSepOctNovDec"
)

// time reads a time of RFC 1123, in GMT, as package time does.
func (s *scanner) time(text string) time.Time {
	if len(text) != len(layout) || text[3:5] != ", " || text[7] != ' ' || text[11] != ' ' || text[16] != ' ' ||
		text[19] != ':' || text[22] != ':' || text[25:] != " GMT" {
		s.failed = true
		return time.Time{}
	}
	weekday, month := strings.Index(days, text[:3]), strings.Index(months, text[8:11])
	day, year := int(s.number(text[5:7])), int(s.number(text[12:16]))
	hour, minute, second := int(s.number(text[17:19])), int(s.number(text[20:22])), int(s.number(text[23:25]))
	t := time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	if weekday%3 != 0 || month%3 != 0 || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		s.failed = true // not found, or out of range
		return time.Time{}
	}
	return t
}

// space skips white space between elements.
func (s *scanner) space() { s.rest = strings.TrimLeft(s.rest, " \t\r\n") }

// skip skips the next bytes if they are that text.
func (s *scanner) skip(text string) bool {
	rest, ok := strings.CutPrefix(s.rest, text)
	s.rest = rest
	return ok
}

func (s *scanner) expect(text string) {
	if !s.skip(text) {
		s.failed = true
	}
}

// ended reports whether the document was read to its end.
func (s *scanner) ended() bool {
	s.space()
	return !s.failed && s.rest == ""
}
