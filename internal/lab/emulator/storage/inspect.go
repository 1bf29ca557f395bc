package storage

import (
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// The functions in this file read the account without calls: nothing is counted,
// delayed or refused.

// Queues returns the names of all queues, in order.
func (s *Server) Queues() []string { return s.queues.Queues() }

// Containers returns the names of all containers, in order.
func (s *Server) Containers() []string { return s.blobs.Containers() }

// AgeMessages makes the messages of a queue look as if they had been put that much
// earlier, as in a queue that was left alone.
func (s *Server) AgeMessages(queueName string, by time.Duration) { s.queues.Age(queueName, by) }

// Messages returns all messages of a queue, in the order in which they become
// visible; none where there is no such queue.
func (s *Server) Messages(queueName string) []queues.Message { return s.queues.Messages(queueName) }

// Message returns one message of a queue. It reports false where there is none.
func (s *Server) Message(queueName, id string) (queues.Message, bool) {
	messages := s.Messages(queueName)
	i := slices.IndexFunc(messages, func(m queues.Message) bool { return m.ID == id })
	if i < 0 {
		return queues.Message{}, false
	}
	return messages[i], true
}

// Blobs returns all blobs of a container by name, also blobs with staged blocks only;
// none where there is no such container.
func (s *Server) Blobs(containerName string) []blobs.State { return s.blobs.Blobs(containerName) }

// ReadBlob returns one blob and a copy of its bytes. It reports false where
// the blob does not exist or was never committed.
func (s *Server) ReadBlob(containerName, name string) (blobs.State, []byte, bool) {
	return s.blobs.Read(containerName, name)
}

// BlobETag returns the ETag of a blob, or "" if the blob does not exist or was never
// committed.
func (s *Server) BlobETag(containerName, name string) string {
	return s.blobs.ETag(containerName, name)
}
