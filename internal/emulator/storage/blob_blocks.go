package storage

import (
	"fmt"
	"net/http"
	"strings"
)

// putBlock stages a block. Where the blob does not exist, its name is taken
// from now on, though a read does not find it.
func (s *blobService) putBlock(r *request) (*reply, error) {
	id, err := decodeBlockID(r.query.Get("blockid"))
	if err != nil {
		return nil, err
	}
	c, _, err := s.target(r)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Content-MD5") != "" || r.Header.Get("x-ms-content-crc64") != "" {
		if _, err := verifyBody(r, "Content-MD5"); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.rest, r.now)
	if err := checkLease(c.committed(r.rest, r.now), r.now); err != nil {
		return nil, err
	}
	b := c.change(r.rest)
	if n := b.idLength(); n != 0 && n != len(id) {
		return nil, errInvalidBlock.because("%d bytes before base64, not %d", len(id), n)
	}
	if err := b.staged.put(block{id: id, data: r.body}, r.now); err != nil {
		return nil, err
	}
	p := newReply(http.StatusCreated)
	p.set("Content-MD5", r.Header.Get("Content-MD5"))
	p.set("x-ms-content-crc64", r.Header.Get("x-ms-content-crc64"))
	p.set("x-ms-request-server-encrypted", "true")
	return p, nil
}

// putBlockList replaces a blob by the blocks that the body names, in that
// order. Staged blocks that it does not name are discarded; a request that is
// refused discards nothing. Unlike Put Blob it creates a blob for which only
// blocks were staged, under "If-None-Match: *" too.
func (s *blobService) putBlockList(r *request) (*reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	list, err := parseBlockList(r.body)
	if err != nil {
		return nil, err
	}
	if _, err := verifyBody(r, "Content-MD5"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.rest, r.now)
	old := c.committed(r.rest, r.now)
	if err := conds.checkWrite(old); err != nil {
		return nil, err
	}
	if conds.createOnly() && old != nil {
		return nil, errBlobExists
	}
	if err := checkLease(old, r.now); err != nil {
		return nil, err
	}
	current := c.find(r.rest, r.now)
	if current == nil {
		current = &blob{}
	}
	blocks, err := current.choose(list)
	if err != nil {
		return nil, err
	}
	v := s.newVersion(r, old, metadata, requestProperties(r.Header))
	v.content, v.fromBlocks = newContent(blocks), true
	b := c.change(r.rest)
	b.current, b.staged = v, stagedBlocks{}
	return written(http.StatusCreated, v), nil
}

// getBlockList lists a blob's committed or staged blocks, or both. It finds
// blobs for which blocks were only staged.
func (s *blobService) getBlockList(r *request) (*reply, error) {
	c, _, err := s.target(r)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.find(r.rest, r.now)
	if b == nil {
		return nil, errBlobNotFound
	}
	which := strings.ToLower(r.query.Get("blocklisttype"))
	doc := newXML("BlockList")
	if which != "uncommitted" {
		doc.open("CommittedBlocks")
		if b.current != nil && b.current.fromBlocks {
			writeBlocks(doc, b.current.content.blocks)
		}
		doc.close("CommittedBlocks")
	}
	if which == "uncommitted" || which == "all" {
		doc.open("UncommittedBlocks")
		if !b.staged.expired(r.now) {
			writeBlocks(doc, b.staged.list())
		}
		doc.close("UncommittedBlocks")
	}
	doc.close("BlockList")
	p := xmlReply(doc)
	p.set("x-ms-blob-content-length", "0")
	if v := b.current; v != nil {
		p.set("ETag", v.etag)
		p.setTime("Last-Modified", v.modified)
		p.set("x-ms-blob-content-length", fmt.Sprint(v.content.size()))
	}
	return p, nil
}
