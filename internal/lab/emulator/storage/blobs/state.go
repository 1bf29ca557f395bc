package blobs

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// State is the state of a blob.
type State struct {
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

// Containers returns the names of all containers, in order.
func (s *Service) Containers() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(s.names.From(""))
}

// Blobs returns all blobs of a container by name, also blobs with staged blocks only;
// none where there is no such container.
func (s *Service) Blobs(containerName string) []State {
	c := s.containerNamed(containerName)
	if c == nil {
		return nil
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []State
	for name := range c.names.From("") {
		if b := c.find(name, now); b != nil {
			out = append(out, b.state(name, now))
		}
	}
	return out
}

// Read returns one blob and a copy of its bytes. It reports false where the blob
// does not exist or was never committed.
func (s *Service) Read(containerName, name string) (State, []byte, bool) {
	c := s.containerNamed(containerName)
	if c == nil {
		return State{}, nil, false
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.find(name, now)
	if b == nil || b.current == nil {
		return State{}, nil, false
	}
	var body bytes.Buffer
	_, _ = b.current.content.Read(protocol.Range{Count: b.current.content.Size()}).WriteTo(&body)
	return b.state(name, now), body.Bytes(), true
}

// ETag returns the ETag of a blob, or "" if the blob does not exist or was never committed.
func (s *Service) ETag(containerName, name string) string {
	c := s.containerNamed(containerName)
	if c == nil {
		return ""
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if v := c.committed(name, time.Now()); v != nil {
		return v.etag
	}
	return ""
}

func (s *Service) containerNamed(name string) *container {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.containers[name]
}

// state returns a copy of a blob's state.
func (b *blob) state(name string, now time.Time) State {
	st := State{Name: name}
	if !b.staged.expired(now) {
		st.Staged = blockStates(b.staged.list())
	}
	v := b.current
	if v == nil {
		return st
	}
	st.Committed = true
	st.ETag, st.LastModified, st.ContentType = v.etag, v.modified, v.properties.contentType
	st.Metadata, st.Size = maps.Clone(v.metadata), v.content.Size()
	st.Blocks = blockStates(v.blocks)
	return st
}

func blockStates(blocks []block) []BlockState {
	var out []BlockState
	for _, b := range blocks {
		out = append(out, BlockState{ID: encodeBlockID(b.id), Size: int64(len(b.data))})
	}
	return out
}
