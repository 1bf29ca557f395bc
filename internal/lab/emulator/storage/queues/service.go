// Package queues is the queue service of the account: queues whose messages become
// visible, are hidden and expire, at a cost that does not depend on the backlog. A
// request comes in through Service.Route, and every operation of the REST documentation
// is one function.
package queues

import (
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// Service is the account's queues.
type Service struct {
	mu     sync.RWMutex
	queues map[string]*queue
	names  protocol.NameIndex
}

// New returns a service without queues.
func New() *Service {
	return &Service{queues: make(map[string]*queue)}
}

// Kind names the service.
func (s *Service) Kind() protocol.Service { return protocol.QueueService }

// Operations, by the names that the REST documentation gives them without spaces.
const (
	OpListQueues       = "ListQueues"
	OpCreateQueue      = "CreateQueue"
	OpDeleteQueue      = "DeleteQueue"
	OpGetQueueMetadata = "GetQueueMetadata"
	OpSetQueueMetadata = "SetQueueMetadata"
	OpPutMessage       = "PutMessage"
	OpGetMessages      = "GetMessages"
	OpPeekMessages     = "PeekMessages"
	OpUpdateMessage    = "UpdateMessage"
	OpDeleteMessage    = "DeleteMessage"
	OpClearMessages    = "ClearMessages"
)

// maxMessageBody is the most bytes of a request's body: a message of 64 KiB in which
// every character is written as an entity.
const maxMessageBody = 512 << 10

// Route names the operation: the resource's level, the method and a query
// parameter tell them apart.
func (s *Service) Route(r *protocol.Request) (protocol.Operation, error) {
	comp := r.Query.Get("comp")
	switch {
	case r.Resource == "":
		if r.Method == http.MethodGet && comp == "list" {
			return protocol.Operation{Name: OpListQueues, Run: s.list}, nil
		}
	case r.Rest == "":
		return s.routeQueue(r, comp)
	case r.Rest == "messages":
		return s.routeMessages(r)
	case r.MessageID() != "":
		switch r.Method {
		case http.MethodPut:
			return protocol.Operation{Name: OpUpdateMessage, MaxBody: maxMessageBody, Run: s.updateMessage}, nil
		case http.MethodDelete:
			return protocol.Operation{Name: OpDeleteMessage, Run: s.deleteMessage}, nil
		}
	}
	return protocol.Operation{Name: protocol.OpUnknown}, protocol.UnknownOperation(r)
}

func (s *Service) routeQueue(r *protocol.Request, comp string) (protocol.Operation, error) {
	switch r.Method + " " + comp {
	case "PUT ":
		return protocol.Operation{Name: OpCreateQueue, Run: s.create}, nil
	case "DELETE ":
		return protocol.Operation{Name: OpDeleteQueue, Run: s.delete}, nil
	case "GET metadata", "HEAD metadata":
		return protocol.Operation{Name: OpGetQueueMetadata, Run: s.getMetadata}, nil
	case "PUT metadata":
		return protocol.Operation{Name: OpSetQueueMetadata, Run: s.setMetadata}, nil
	}
	return protocol.Operation{Name: protocol.OpUnknown}, protocol.UnknownOperation(r)
}

func (s *Service) routeMessages(r *protocol.Request) (protocol.Operation, error) {
	switch {
	case r.Method == http.MethodPost:
		return protocol.Operation{Name: OpPutMessage, MaxBody: maxMessageBody, Run: s.putMessage}, nil
	case r.Method == http.MethodDelete:
		return protocol.Operation{Name: OpClearMessages, Run: s.clearMessages}, nil
	case r.Method == http.MethodGet && r.Query.Get("peekonly") == "true":
		return protocol.Operation{Name: OpPeekMessages, Run: s.peekMessages}, nil
	case r.Method == http.MethodGet:
		return protocol.Operation{Name: OpGetMessages, Run: s.getMessages}, nil
	}
	return protocol.Operation{Name: protocol.OpUnknown}, protocol.UnknownOperation(r)
}

// find returns the queue that a request names.
func (s *Service) find(r *protocol.Request) (*queue, error) {
	if err := protocol.CheckResourceName(r.Resource); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[r.Resource]; q != nil {
		return q, nil
	}
	return nil, errQueueNotFound
}

// list answers List Queues.
func (s *Service) list(r *protocol.Request) (*protocol.Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return protocol.ListNames(r, "Queues", &s.names, func(doc *protocol.XML, name string) {
		s.queues[name].write(doc, name, r.Includes("metadata"))
	})
}

// write lists one queue.
func (q *queue) write(doc *protocol.XML, name string, withMetadata bool) {
	doc.Open("Queue")
	doc.Text("Name", name)
	if withMetadata {
		q.mu.Lock()
		defer q.mu.Unlock()
		protocol.WriteMetadata(doc, q.metadata)
	}
	doc.Close("Queue")
}

// create makes a queue: 201, or 204 where it exists with the same metadata.
func (s *Service) create(r *protocol.Request) (*protocol.Reply, error) {
	if err := protocol.CheckResourceName(r.Resource); err != nil {
		return nil, err
	}
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[r.Resource]; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !maps.Equal(q.metadata, metadata) {
			return nil, errQueueExists
		}
		return protocol.NewReply(http.StatusNoContent), nil
	}
	s.queues[r.Resource] = newQueue(metadata)
	s.names.Add(r.Resource)
	return protocol.NewReply(http.StatusCreated), nil
}

// delete removes a queue at once. On Azure its name is taken for some 30 s
// more.
func (s *Service) delete(r *protocol.Request) (*protocol.Reply, error) {
	if _, err := s.find(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, r.Resource)
	s.names.Remove(r.Resource)
	return protocol.NewReply(http.StatusNoContent), nil
}

// getMetadata returns metadata and the number of messages, which includes the
// invisible ones.
func (s *Service) getMetadata(r *protocol.Request) (*protocol.Reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	p := protocol.NewReply(http.StatusOK)
	p.Set("x-ms-approximate-messages-count", strconv.Itoa(q.count(r.Now)))
	q.mu.Lock()
	defer q.mu.Unlock()
	p.SetMetadata(q.metadata)
	return p, nil
}

func (s *Service) setMetadata(r *protocol.Request) (*protocol.Reply, error) {
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.metadata = metadata // the old map is never written to, so readers may keep it
	return protocol.NewReply(http.StatusNoContent), nil
}
