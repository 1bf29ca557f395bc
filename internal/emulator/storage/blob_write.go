package storage

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum, not a protection
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"net/http"
)

// putBlob replaces a blob by the request's body. The blob's committed block
// list is empty afterwards, and what was staged for it is gone.
func (s *blobService) putBlob(r *request) (*reply, error) {
	switch kind := r.Header.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return nil, errMissingHeader.because("x-ms-blob-type")
	default:
		return nil, errNotImplemented.because("blobs of type %q", kind)
	}
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	props := requestProperties(r.Header)
	if props.contentType == "" {
		props.contentType = r.Header.Get("Content-Type")
	}
	hash, err := verifyBody(r, "x-ms-blob-content-md5", "Content-MD5")
	if err != nil {
		return nil, err
	}
	props.contentMD5 = hash

	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.rest, r.now)
	old := c.committed(r.rest, r.now)
	if err := conds.checkWrite(old); err != nil {
		return nil, err
	}
	// Blocks that were staged for a blob without a version are in the way of
	// a create too, though the blob cannot be read.
	if conds.createOnly() && c.find(r.rest, r.now) != nil {
		return nil, errBlobExists
	}
	if err := checkLease(old, r.now); err != nil {
		return nil, err
	}
	v := s.newVersion(r, nil, metadata, props)
	v.content = newContent([]block{{data: r.body}})
	b := c.change(r.rest)
	b.current, b.staged = v, stagedBlocks{}
	p := written(http.StatusCreated, v)
	p.set("Content-MD5", props.contentMD5)
	p.set("x-ms-content-crc64", r.Header.Get("x-ms-content-crc64"))
	return p, nil
}

// newVersion begins a version. It keeps the time of creation of old; old is nil
// where the blob is new, or replaced by Put Blob.
func (s *blobService) newVersion(r *request, old *version, metadata map[string]string, props properties) *version {
	v := &version{etag: s.newETag(), created: r.now, modified: r.now, metadata: metadata, properties: props}
	if old != nil {
		v.created = old.created
	}
	if v.properties.contentType == "" {
		v.properties.contentType = "application/octet-stream"
	}
	return v
}

// setMetadata replaces a blob's metadata. Body, committed and staged blocks
// stay; the entity tag changes.
func (s *blobService) setMetadata(r *request) (*reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.existing(r, conds)
	if err != nil {
		return nil, err
	}
	if err := checkLease(old, r.now); err != nil {
		return nil, err
	}
	v := *old
	v.etag, v.modified, v.metadata = s.newETag(), r.now, metadata
	c.change(r.rest).current = &v
	return written(http.StatusOK, &v), nil
}

// existing returns the committed version of a blob that a request changes, if it
// meets the conditions. The container must be locked for writing.
func (c *container) existing(r *request, conds conditions) (*version, error) {
	v := c.committed(r.rest, r.now)
	if err := conds.checkWrite(v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, errBlobNotFound
	}
	return v, nil
}

// deleteBlob removes a committed blob and whatever is staged for it. Blocks
// staged for a blob that was never committed cannot be deleted.
func (s *blobService) deleteBlob(r *request) (*reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.existing(r, conds)
	if err != nil {
		return nil, err
	}
	if err := checkLease(v, r.now); err != nil {
		return nil, err
	}
	c.remove(r.rest)
	return newReply(http.StatusAccepted), nil
}

// requestProperties reads the x-ms-blob- headers of a write.
func requestProperties(h http.Header) properties {
	return properties{
		contentType:        h.Get("x-ms-blob-content-type"),
		contentEncoding:    h.Get("x-ms-blob-content-encoding"),
		contentLanguage:    h.Get("x-ms-blob-content-language"),
		contentDisposition: h.Get("x-ms-blob-content-disposition"),
		cacheControl:       h.Get("x-ms-blob-cache-control"),
		contentMD5:         h.Get("x-ms-blob-content-md5"),
	}
}

// crcTable is for the CRC-64 that the service uses.
var crcTable = crc64.MakeTable(0x9A6C9329AC4BC9B5)

// verifyBody compares the body with the hashes that the request states: the
// first MD5 header of those named, and x-ms-content-crc64. It returns the
// body's MD5 in base64.
func verifyBody(r *request, md5Headers ...string) (string, error) {
	if want := r.Header.Get("x-ms-content-crc64"); want != "" && want != crc64Of(r.body) {
		return "", errCRC64Mismatch
	}
	got := md5Of(r.body)
	for _, name := range md5Headers {
		want := r.Header.Get(name)
		if want == "" {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(want); err != nil || len(raw) != md5.Size {
			return "", errInvalidMD5.because("%s %q", name, want)
		}
		if want != got {
			return "", errMD5Mismatch
		}
		break
	}
	return got, nil
}

// md5Of returns the MD5 as headers carry it.
func md5Of(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}

// crc64Of returns the CRC-64 as headers carry it: little endian.
func crc64Of(data []byte) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], crc64.Checksum(data, crcTable))
	return base64.StdEncoding.EncodeToString(b[:])
}
