package storage

// messageList is a doubly linked list of messages, so that any of them can be
// taken out at constant cost. The zero value is empty.
type messageList struct {
	first, last *message
}

// links tie a message to its neighbours in a messageList.
type links struct {
	previous, next *message
}

// add appends a message that is in no list.
func (l *messageList) add(m *message) {
	m.links = links{previous: l.last}
	if l.last == nil {
		l.first = m
	} else {
		l.last.links.next = m
	}
	l.last = m
}

// remove takes out a message that is in the list.
func (l *messageList) remove(m *message) {
	if m.links.previous == nil {
		l.first = m.links.next
	} else {
		m.links.previous.links.next = m.links.next
	}
	if m.links.next == nil {
		l.last = m.links.previous
	} else {
		m.links.next.links.previous = m.links.previous
	}
	m.links = links{}
}
