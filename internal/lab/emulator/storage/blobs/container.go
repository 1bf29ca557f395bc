package blobs

import (
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// container is one container and its blobs.
type container struct {
	mu       sync.RWMutex
	metadata map[string]string
	etag     string
	modified time.Time
	blobs    map[string]*blob
	names    protocol.NameIndex
}

// blob is a name in a container: a committed version, staged blocks, or both.
type blob struct {
	current *version // nil while blocks were staged but never committed
	staged  stagedBlocks
}

// version is one committed state of a blob. It never changes, so that a reader
// needs no lock once it has one; every write makes another.
type version struct {
	etag       string
	created    time.Time
	modified   time.Time
	metadata   map[string]string
	properties properties
	lease      lease
	content    protocol.Content
	blocks     []block // the committed block list, empty after a Put Blob
}

// properties are the standard HTTP headers that a blob keeps.
type properties struct {
	contentType, contentEncoding, contentLanguage, contentDisposition, cacheControl string
	contentMD5                                                                      string // base64
}

// stagedRetention is how long blocks that were staged but not committed are
// kept after the last of them ("Put Block" in the REST documentation).
const stagedRetention = 7 * 24 * time.Hour

// find returns the blob of that name, or nil. Blocks that were staged too long
// ago do not count. The container must be locked, at least for reading.
func (c *container) find(name string, now time.Time) *blob {
	b := c.blobs[name]
	if b != nil && b.current == nil && b.staged.expired(now) {
		return nil
	}
	return b
}

// committed returns the blob's current version, or nil where there is none.
func (c *container) committed(name string, now time.Time) *version {
	if b := c.find(name, now); b != nil {
		return b.current
	}
	return nil
}

// snapshot is committed for callers without the lock.
func (c *container) snapshot(name string, now time.Time) *version {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.committed(name, now)
}

// sweep drops blocks of a blob that were staged too long ago. The container
// must be locked for writing.
func (c *container) sweep(name string, now time.Time) {
	b := c.blobs[name]
	if b == nil || !b.staged.expired(now) {
		return
	}
	b.staged = stagedBlocks{}
	if b.current == nil {
		c.remove(name)
	}
}

// change returns the blob of that name for a write, made where there is none.
// The container must be locked for writing.
func (c *container) change(name string) *blob {
	b := c.blobs[name]
	if b == nil {
		b = &blob{}
		c.blobs[name] = b
		c.names.Add(name)
	}
	return b
}

// remove deletes the blob and its staged blocks. The container must be locked for
// writing.
func (c *container) remove(name string) {
	delete(c.blobs, name)
	c.names.Remove(name)
}

// block is a piece of a blob. Its bytes never change and are shared by all
// versions that have it.
type block struct {
	id   string // decoded
	data []byte
}
