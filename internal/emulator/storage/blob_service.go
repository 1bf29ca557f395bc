package storage

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
)

// blobService is the account's containers.
type blobService struct {
	mu         sync.RWMutex
	containers map[string]*container
	names      nameIndex
	etags      atomic.Uint64
}

func newBlobService() *blobService {
	return &blobService{containers: make(map[string]*container)}
}

func (s *blobService) kind() Service { return BlobService }

// Most bytes of a request's body ("Scalability targets for Blob storage").
const (
	maxPutBlob   = 5000 << 20
	maxPutBlock  = 4000 << 20
	maxBlockList = 8 << 20 // 50,000 entries of 64 bytes, base64 and element names
)

// newETag returns a new, unique entity tag, with quotes.
func (s *blobService) newETag() string {
	return fmt.Sprintf(`"0x8DE%012X"`, s.etags.Add(1))
}

// refusedHeaders ask for features that the emulator does not have. Ignoring
// one would pretend to support it.
var refusedHeaders = []string{
	"x-ms-lease-id", "x-ms-copy-source", "x-ms-tags", "x-ms-if-tags", "x-ms-encryption-key",
	"x-ms-encryption-scope", "x-ms-immutability-policy-mode", "x-ms-legal-hold", "x-ms-structured-body",
}

// route names the operation: the resource's level, the method and the query
// parameters tell them apart.
func (s *blobService) route(r *request) (operation, error) {
	op := s.operation(r)
	switch {
	case op.run == nil:
		return operation{name: OpUnknown}, unknownOperation(r)
	case r.query.Has("versionid") || r.query.Has("snapshot"):
		return op, errUnsupportedQuery.because("the emulator keeps no versions and no snapshots")
	}
	for _, name := range refusedHeaders {
		if r.Header.Get(name) != "" && (op.name != OpLeaseBlob || name != "x-ms-lease-id") {
			return op, errNotImplemented.because("header %s", name)
		}
	}
	return op, nil
}

func (s *blobService) operation(r *request) operation {
	key := r.Method
	if comp := r.query.Get("comp"); comp != "" {
		key += " " + comp
	}
	switch {
	case r.resource == "" && key == "GET list":
		return operation{OpListContainers, noBody, s.listContainers}
	case r.resource == "":
		return operation{}
	case r.rest != "":
		return s.blobOperation(key)
	case r.query.Get("restype") == "container":
		return s.containerOperation(key)
	}
	return operation{}
}

func (s *blobService) containerOperation(key string) operation {
	switch key {
	case "PUT":
		return operation{OpCreateContainer, noBody, s.createContainer}
	case "DELETE":
		return operation{OpDeleteContainer, noBody, s.deleteContainer}
	case "GET", "HEAD":
		return operation{OpGetContainerProperties, noBody, s.getContainer}
	case "GET metadata", "HEAD metadata":
		return operation{OpGetContainerMetadata, noBody, s.getContainer}
	case "PUT metadata":
		return operation{OpSetContainerMetadata, noBody, s.setContainerMetadata}
	case "GET list":
		return operation{OpListBlobs, noBody, s.listBlobs}
	}
	return operation{}
}

func (s *blobService) blobOperation(key string) operation {
	switch key {
	case "PUT":
		return operation{OpPutBlob, maxPutBlob, s.putBlob}
	case "GET":
		return operation{OpGetBlob, noBody, s.getBlob}
	case "HEAD":
		return operation{OpGetBlobProperties, noBody, s.getProperties}
	case "DELETE":
		return operation{OpDeleteBlob, noBody, s.deleteBlob}
	case "GET metadata", "HEAD metadata":
		return operation{OpGetBlobMetadata, noBody, s.getBlobMetadata}
	case "PUT metadata":
		return operation{OpSetBlobMetadata, noBody, s.setMetadata}
	case "PUT lease":
		return operation{OpLeaseBlob, noBody, s.leaseBlob}
	case "PUT block":
		return operation{OpPutBlock, maxPutBlock, s.putBlock}
	case "PUT blocklist":
		return operation{OpPutBlockList, maxBlockList, s.putBlockList}
	case "GET blocklist":
		return operation{OpGetBlockList, noBody, s.getBlockList}
	}
	return operation{}
}

// find returns the container that a request names.
func (s *blobService) find(r *request) (*container, error) {
	if err := checkResourceName(r.resource); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.containers[r.resource]; c != nil {
		return c, nil
	}
	return nil, errContainerNotFound
}

// target returns the container of the blob that a request names, and the
// request's conditions.
func (s *blobService) target(r *request) (*container, conditions, error) {
	if err := checkBlobName(r.rest); err != nil {
		return nil, conditions{}, err
	}
	conds, err := parseConditions(r.Header)
	if err != nil {
		return nil, conditions{}, err
	}
	c, err := s.find(r)
	return c, conds, err
}

// written is the reply to a write: the new entity tag and time.
func written(status int, v *version) *reply {
	p := newReply(status)
	p.set("ETag", v.etag)
	p.setTime("Last-Modified", v.modified)
	if status == http.StatusCreated {
		p.set("x-ms-request-server-encrypted", "true")
	}
	return p
}

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
