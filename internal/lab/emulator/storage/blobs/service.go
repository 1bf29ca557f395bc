// Package blobs is the blob service of the account: containers, block blobs in versions
// that never change, staged blocks, conditions and leases. A request comes in through
// Service.Route, and every operation of the REST documentation is one function.
package blobs

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// Service is the account's containers.
type Service struct {
	mu         sync.RWMutex
	containers map[string]*container
	names      protocol.NameIndex
	etags      atomic.Uint64
	page       atomic.Int64 // the most entries in a page of a list of blobs; 0 for the protocol's
}

// New returns a service without containers.
func New() *Service {
	return &Service{containers: make(map[string]*container)}
}

// LimitPages gives lists of blobs pages of at most n entries; 0 stands for the 5,000 of
// the protocol. A service may send fewer entries than a client asks for.
func (s *Service) LimitPages(n int) { s.page.Store(int64(n)) }

// Kind names the service.
func (s *Service) Kind() protocol.Service { return protocol.BlobService }

// Operations, by the names that the REST documentation gives them without spaces.
const (
	OpListContainers         = "ListContainers"
	OpCreateContainer        = "CreateContainer"
	OpDeleteContainer        = "DeleteContainer"
	OpGetContainerProperties = "GetContainerProperties"
	OpGetContainerMetadata   = "GetContainerMetadata"
	OpSetContainerMetadata   = "SetContainerMetadata"
	OpListBlobs              = "ListBlobs"
	OpPutBlob                = "PutBlob"
	OpGetBlob                = "GetBlob"
	OpGetBlobProperties      = "GetBlobProperties"
	OpGetBlobMetadata        = "GetBlobMetadata"
	OpSetBlobMetadata        = "SetBlobMetadata"
	OpDeleteBlob             = "DeleteBlob"
	OpLeaseBlob              = "LeaseBlob"
	OpPutBlock               = "PutBlock"
	OpPutBlockList           = "PutBlockList"
	OpGetBlockList           = "GetBlockList"
)

// Most bytes of a request's body ("Scalability targets for Blob storage").
const (
	maxPutBlob   = 5000 << 20
	maxPutBlock  = 4000 << 20
	maxBlockList = 8 << 20 // 50,000 entries of 64 bytes, base64 and element names
)

// newETag returns a new, unique entity tag, with quotes.
func (s *Service) newETag() string {
	return fmt.Sprintf(`"0x8DE%012X"`, s.etags.Add(1))
}

// refusedHeaders ask for features that the emulator does not have. Ignoring
// one would pretend to support it.
var refusedHeaders = []string{
	"x-ms-lease-id", "x-ms-copy-source", "x-ms-tags", "x-ms-if-tags", "x-ms-encryption-key",
	"x-ms-encryption-scope", "x-ms-immutability-policy-mode", "x-ms-legal-hold", "x-ms-structured-body",
}

// Route names the operation: the resource's level, the method and the query
// parameters tell them apart.
func (s *Service) Route(r *protocol.Request) (protocol.Operation, error) {
	op := s.operation(r)
	switch {
	case op.Run == nil:
		return protocol.Operation{Name: protocol.OpUnknown}, protocol.UnknownOperation(r)
	case r.Query.Has("versionid") || r.Query.Has("snapshot"):
		return op, protocol.ErrUnsupportedQuery.Because("the emulator keeps no versions and no snapshots")
	}
	for _, name := range refusedHeaders {
		if r.Header.Get(name) != "" && (op.Name != OpLeaseBlob || name != "x-ms-lease-id") {
			return op, protocol.ErrNotImplemented.Because("header %s", name)
		}
	}
	return op, nil
}

func (s *Service) operation(r *protocol.Request) protocol.Operation {
	key := r.Method
	if comp := r.Query.Get("comp"); comp != "" {
		key += " " + comp
	}
	switch {
	case r.Resource == "" && key == "GET list":
		return protocol.Operation{Name: OpListContainers, Run: s.listContainers}
	case r.Resource == "":
		return protocol.Operation{}
	case r.Rest != "":
		return s.blobOperation(key)
	case r.Query.Get("restype") == "container":
		return s.containerOperation(key)
	}
	return protocol.Operation{}
}

func (s *Service) containerOperation(key string) protocol.Operation {
	switch key {
	case "PUT":
		return protocol.Operation{Name: OpCreateContainer, Run: s.createContainer}
	case "DELETE":
		return protocol.Operation{Name: OpDeleteContainer, Run: s.deleteContainer}
	case "GET", "HEAD":
		return protocol.Operation{Name: OpGetContainerProperties, Run: s.getContainer}
	case "GET metadata", "HEAD metadata":
		return protocol.Operation{Name: OpGetContainerMetadata, Run: s.getContainer}
	case "PUT metadata":
		return protocol.Operation{Name: OpSetContainerMetadata, Run: s.setContainerMetadata}
	case "GET list":
		return protocol.Operation{Name: OpListBlobs, Run: s.listBlobs}
	}
	return protocol.Operation{}
}

func (s *Service) blobOperation(key string) protocol.Operation {
	switch key {
	case "PUT":
		return protocol.Operation{Name: OpPutBlob, MaxBody: maxPutBlob, Run: s.putBlob}
	case "GET":
		return protocol.Operation{Name: OpGetBlob, Run: s.getBlob}
	case "HEAD":
		return protocol.Operation{Name: OpGetBlobProperties, Run: s.getProperties}
	case "DELETE":
		return protocol.Operation{Name: OpDeleteBlob, Run: s.deleteBlob}
	case "GET metadata", "HEAD metadata":
		return protocol.Operation{Name: OpGetBlobMetadata, Run: s.getBlobMetadata}
	case "PUT metadata":
		return protocol.Operation{Name: OpSetBlobMetadata, Run: s.setMetadata}
	case "PUT lease":
		return protocol.Operation{Name: OpLeaseBlob, Run: s.leaseBlob}
	case "PUT block":
		return protocol.Operation{Name: OpPutBlock, MaxBody: maxPutBlock, Run: s.putBlock}
	case "PUT blocklist":
		return protocol.Operation{Name: OpPutBlockList, MaxBody: maxBlockList, Run: s.putBlockList}
	case "GET blocklist":
		return protocol.Operation{Name: OpGetBlockList, Run: s.getBlockList}
	}
	return protocol.Operation{}
}

// find returns the container that a request names.
func (s *Service) find(r *protocol.Request) (*container, error) {
	if err := protocol.CheckResourceName(r.Resource); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.containers[r.Resource]; c != nil {
		return c, nil
	}
	return nil, errContainerNotFound
}

// target returns the container of the blob that a request names, and the
// request's conditions.
func (s *Service) target(r *protocol.Request) (*container, conditions, error) {
	if err := protocol.CheckBlobName(r.Rest); err != nil {
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
func written(status int, v *version) *protocol.Reply {
	p := protocol.NewReply(status)
	p.Set("ETag", v.etag)
	p.SetTime("Last-Modified", v.modified)
	if status == http.StatusCreated {
		p.Set("x-ms-request-server-encrypted", "true")
	}
	return p
}

func (s *Service) createContainer(r *protocol.Request) (*protocol.Reply, error) {
	if err := protocol.CheckResourceName(r.Resource); err != nil {
		return nil, err
	}
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[r.Resource] != nil {
		return nil, errContainerExists
	}
	c := &container{metadata: metadata, etag: s.newETag(), modified: r.Now, blobs: make(map[string]*blob)}
	s.containers[r.Resource] = c
	s.names.Add(r.Resource)
	return c.reply(http.StatusCreated), nil
}

// deleteContainer removes a container and its blobs at once. On Azure its name
// is taken for some 30 s more.
func (s *Service) deleteContainer(r *protocol.Request) (*protocol.Reply, error) {
	if _, err := s.find(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, r.Resource)
	s.names.Remove(r.Resource)
	return protocol.NewReply(http.StatusAccepted), nil
}

func (s *Service) getContainer(r *protocol.Request) (*protocol.Reply, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := c.reply(http.StatusOK)
	p.Set("x-ms-lease-status", "unlocked")
	p.Set("x-ms-lease-state", "available")
	p.Set("x-ms-has-immutability-policy", "false")
	p.Set("x-ms-has-legal-hold", "false")
	p.SetMetadata(c.metadata)
	return p, nil
}

func (s *Service) setContainerMetadata(r *protocol.Request) (*protocol.Reply, error) {
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata, c.etag, c.modified = metadata, s.newETag(), r.Now
	return c.reply(http.StatusOK), nil
}

func (c *container) reply(status int) *protocol.Reply {
	p := protocol.NewReply(status)
	p.Set("ETag", c.etag)
	p.SetTime("Last-Modified", c.modified)
	return p
}

func (s *Service) listContainers(r *protocol.Request) (*protocol.Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return protocol.ListNames(r, "Containers", &s.names, func(doc *protocol.XML, name string) {
		s.containers[name].write(doc, name, r.Includes("metadata"))
	})
}

// write lists one container.
func (c *container) write(doc *protocol.XML, name string, withMetadata bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	doc.Open("Container")
	doc.Text("Name", name)
	doc.Open("Properties")
	doc.Time("Last-Modified", c.modified)
	doc.Text("Etag", c.etag)
	doc.Text("LeaseStatus", "unlocked")
	doc.Text("LeaseState", "available")
	doc.Close("Properties")
	if withMetadata {
		protocol.WriteMetadata(doc, c.metadata)
	}
	doc.Close("Container")
}
