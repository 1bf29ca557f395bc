package storage

import (
	"bytes"
	"maps"
	"slices"
	"time"
)

// The functions in this file read the account without calls: nothing is counted,
// delayed or refused.

// Message is the state of a message.
type Message struct {
	ID           string
	Text         string
	Inserted     time.Time
	Expires      time.Time // zero: never
	NextVisible  time.Time
	Visible      bool // now
	DequeueCount int64
	PopReceipt   string // the current one
}

// BlobState is the state of a blob.
type BlobState struct {
	Name         string
	Committed    bool // false where blocks were staged but never committed
	ETag         string
	LastModified time.Time // with full precision
	ContentType  string
	Metadata     map[string]string // names in lower case
	Size         int64
	Blocks       []BlockState // the committed block list, empty after Put Blob
	Staged       []BlockState
}

// BlockState is one block of a blob.
type BlockState struct {
	ID   string // base64
	Size int64
}

// Queues returns the names of all queues, in order.
func (s *Server) Queues() []string {
	s.queues.mu.RLock()
	defer s.queues.mu.RUnlock()
	return slices.Collect(s.queues.names.from(""))
}

// Containers returns the names of all containers, in order.
func (s *Server) Containers() []string {
	s.blobs.mu.RLock()
	defer s.blobs.mu.RUnlock()
	return slices.Collect(s.blobs.names.from(""))
}

// AgeMessages makes the messages of a queue look as if they had been put that much earlier,
// as those of a queue that was left alone.
func (s *Server) AgeMessages(queueName string, by time.Duration) {
	s.queues.mu.RLock()
	q := s.queues.queues[queueName]
	s.queues.mu.RUnlock()
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		m.inserted = m.inserted.Add(-by)
	}
}

// Messages returns all messages of a queue, in the order in which they become
// visible; none where there is no such queue.
func (s *Server) Messages(queueName string) []Message {
	s.queues.mu.RLock()
	q := s.queues.queues[queueName]
	s.queues.mu.RUnlock()
	if q == nil {
		return nil
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	all := slices.SortedFunc(maps.Values(q.messages), func(a, b *message) int {
		if soonerVisible(a, b) {
			return -1
		}
		return 1
	})
	out := make([]Message, len(all))
	for i, m := range all {
		out[i] = Message{
			ID: m.id, Text: m.text, Inserted: m.inserted, Expires: m.expires, NextVisible: m.visible,
			Visible: !m.visible.After(now), DequeueCount: m.dequeues, PopReceipt: m.receipt(),
		}
	}
	return out
}

// Blobs returns all blobs of a container by name, those with staged blocks
// only included; none where there is no such container.
func (s *Server) Blobs(containerName string) []BlobState {
	c := s.blobs.containerNamed(containerName)
	if c == nil {
		return nil
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []BlobState
	for name := range c.names.from("") {
		if b := c.find(name, now); b != nil {
			out = append(out, b.state(name, now))
		}
	}
	return out
}

// ReadBlob returns one blob and a copy of its bytes. It reports false where
// the blob does not exist or was never committed.
func (s *Server) ReadBlob(containerName, name string) (BlobState, []byte, bool) {
	c := s.blobs.containerNamed(containerName)
	if c == nil {
		return BlobState{}, nil, false
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.find(name, now)
	if b == nil || b.current == nil {
		return BlobState{}, nil, false
	}
	var body bytes.Buffer
	_, _ = b.current.content.read(Range{Count: b.current.content.size()}).WriteTo(&body)
	return b.state(name, now), body.Bytes(), true
}

func (s *blobService) containerNamed(name string) *container {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.containers[name]
}

// state returns a copy of a blob's state.
func (b *blob) state(name string, now time.Time) BlobState {
	st := BlobState{Name: name}
	if !b.staged.expired(now) {
		st.Staged = blockStates(b.staged.list())
	}
	v := b.current
	if v == nil {
		return st
	}
	st.Committed = true
	st.ETag, st.LastModified, st.ContentType = v.etag, v.modified, v.properties.contentType
	st.Metadata, st.Size = maps.Clone(v.metadata), v.content.size()
	if v.fromBlocks {
		st.Blocks = blockStates(v.content.blocks)
	}
	return st
}

func blockStates(blocks []block) []BlockState {
	var out []BlockState
	for _, b := range blocks {
		out = append(out, BlockState{ID: encodeBlockID(b.id), Size: int64(len(b.data))})
	}
	return out
}
