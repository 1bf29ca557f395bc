package storage

import "net/http"

func (s *blobService) createContainer(r *request) (*reply, error) {
	if err := checkResourceName(r.resource); err != nil {
		return nil, err
	}
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[r.resource] != nil {
		return nil, errContainerExists
	}
	c := &container{metadata: metadata, etag: s.newETag(), modified: r.now, blobs: make(map[string]*blob)}
	s.containers[r.resource] = c
	s.names.add(r.resource)
	return c.reply(http.StatusCreated), nil
}

// deleteContainer removes a container and its blobs at once. On Azure its name
// is taken for some 30 s more.
func (s *blobService) deleteContainer(r *request) (*reply, error) {
	if _, err := s.find(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, r.resource)
	s.names.remove(r.resource)
	return newReply(http.StatusAccepted), nil
}

func (s *blobService) getContainer(r *request) (*reply, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := c.reply(http.StatusOK)
	p.set("x-ms-lease-status", "unlocked")
	p.set("x-ms-lease-state", "available")
	p.set("x-ms-has-immutability-policy", "false")
	p.set("x-ms-has-legal-hold", "false")
	p.setMetadata(c.metadata)
	return p, nil
}

func (s *blobService) setContainerMetadata(r *request) (*reply, error) {
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata, c.etag, c.modified = metadata, s.newETag(), r.now
	return c.reply(http.StatusOK), nil
}

func (c *container) reply(status int) *reply {
	p := newReply(status)
	p.set("ETag", c.etag)
	p.setTime("Last-Modified", c.modified)
	return p
}

func (s *blobService) listContainers(r *request) (*reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return listNames(r, "Containers", &s.names, func(doc *xmlDoc, name string) {
		s.containers[name].write(doc, name, r.includes("metadata"))
	})
}

// write lists one container.
func (c *container) write(doc *xmlDoc, name string, withMetadata bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	doc.open("Container")
	doc.text("Name", name)
	doc.open("Properties")
	doc.time("Last-Modified", c.modified)
	doc.text("Etag", c.etag)
	doc.text("LeaseStatus", "unlocked")
	doc.text("LeaseState", "available")
	doc.close("Properties")
	if withMetadata {
		writeMetadata(doc, c.metadata)
	}
	doc.close("Container")
}
