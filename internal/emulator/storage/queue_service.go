package storage

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// queueService is the account's queues.
type queueService struct {
	mu     sync.RWMutex
	queues map[string]*queue
	names  nameIndex
}

func newQueueService() *queueService {
	return &queueService{queues: make(map[string]*queue)}
}

func (s *queueService) kind() Service { return QueueService }

// Most bytes of a request's body: a message of 64 KiB in which every character
// is written as an entity, and none where the service reads no body.
const (
	maxMessageBody = 512 << 10
	noBody         = 0
)

// route names the operation: the resource's level, the method and a query
// parameter tell them apart.
func (s *queueService) route(r *request) (operation, error) {
	comp := r.query.Get("comp")
	switch {
	case r.resource == "":
		if r.Method == http.MethodGet && comp == "list" {
			return operation{OpListQueues, noBody, s.list}, nil
		}
	case r.rest == "":
		return s.routeQueue(r, comp)
	case r.rest == "messages":
		return s.routeMessages(r)
	case r.messageID() != "":
		switch r.Method {
		case http.MethodPut:
			return operation{OpUpdateMessage, maxMessageBody, s.updateMessage}, nil
		case http.MethodDelete:
			return operation{OpDeleteMessage, noBody, s.deleteMessage}, nil
		}
	}
	return operation{name: OpUnknown}, unknownOperation(r)
}

func (s *queueService) routeQueue(r *request, comp string) (operation, error) {
	switch r.Method + " " + comp {
	case "PUT ":
		return operation{OpCreateQueue, noBody, s.create}, nil
	case "DELETE ":
		return operation{OpDeleteQueue, noBody, s.delete}, nil
	case "GET metadata", "HEAD metadata":
		return operation{OpGetQueueMetadata, noBody, s.getMetadata}, nil
	case "PUT metadata":
		return operation{OpSetQueueMetadata, noBody, s.setMetadata}, nil
	}
	return operation{name: OpUnknown}, unknownOperation(r)
}

func (s *queueService) routeMessages(r *request) (operation, error) {
	switch {
	case r.Method == http.MethodPost:
		return operation{OpPutMessage, maxMessageBody, s.putMessage}, nil
	case r.Method == http.MethodDelete:
		return operation{OpClearMessages, noBody, s.clearMessages}, nil
	case r.Method == http.MethodGet && r.query.Get("peekonly") == "true":
		return operation{OpPeekMessages, noBody, s.peekMessages}, nil
	case r.Method == http.MethodGet:
		return operation{OpGetMessages, noBody, s.getMessages}, nil
	}
	return operation{name: OpUnknown}, unknownOperation(r)
}

// unknownOperation refuses what the emulator does not have, and says what it
// was.
func unknownOperation(r *request) error {
	return errNotImplemented.because("%s %s?%s on the %s service", r.Method, r.URL.Path, r.URL.RawQuery, r.service)
}

// find returns the queue that a request names.
func (s *queueService) find(r *request) (*queue, error) {
	if err := checkResourceName(r.resource); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[r.resource]; q != nil {
		return q, nil
	}
	return nil, errQueueNotFound
}

// list answers List Queues.
func (s *queueService) list(r *request) (*reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return listNames(r, "Queues", &s.names, func(doc *xmlDoc, name string) {
		s.queues[name].write(doc, name, r.includes("metadata"))
	})
}

// write lists one queue.
func (q *queue) write(doc *xmlDoc, name string, withMetadata bool) {
	doc.open("Queue")
	doc.text("Name", name)
	if withMetadata {
		q.mu.Lock()
		defer q.mu.Unlock()
		writeMetadata(doc, q.metadata)
	}
	doc.close("Queue")
}

// create makes a queue: 201, or 204 where it exists with the same metadata.
func (s *queueService) create(r *request) (*reply, error) {
	if err := checkResourceName(r.resource); err != nil {
		return nil, err
	}
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[r.resource]; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !maps.Equal(q.metadata, metadata) {
			return nil, errQueueExists
		}
		return newReply(http.StatusNoContent), nil
	}
	s.queues[r.resource] = newQueue(metadata)
	s.names.add(r.resource)
	return newReply(http.StatusCreated), nil
}

// delete removes a queue at once. On Azure its name is taken for some 30 s
// more.
func (s *queueService) delete(r *request) (*reply, error) {
	if _, err := s.find(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, r.resource)
	s.names.remove(r.resource)
	return newReply(http.StatusNoContent), nil
}

// getMetadata returns metadata and the number of messages, which includes the
// invisible ones.
func (s *queueService) getMetadata(r *request) (*reply, error) {
	q, err := s.find(r)
	if err != nil {
		return nil, err
	}
	p := newReply(http.StatusOK)
	p.set("x-ms-approximate-messages-count", strconv.Itoa(q.count(r.now)))
	q.mu.Lock()
	defer q.mu.Unlock()
	p.setMetadata(q.metadata)
	return p, nil
}

func (s *queueService) setMetadata(r *request) (*reply, error) {
	metadata, err := parseMetadata(r.Header)
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
	return newReply(http.StatusNoContent), nil
}
