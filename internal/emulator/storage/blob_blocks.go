package storage

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
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

// Limits of blocks, from "Put Block" and "Put Block List" in the REST
// documentation.
const (
	maxBlockID      = 64 // bytes before base64
	maxBlocks       = 50_000
	maxStagedBlocks = 100_000
)

// stagedBlocks are a blob's uncommitted blocks. The zero value is none.
type stagedBlocks struct {
	byID  map[string]block
	order []string // ids in the order of their first staging
	last  time.Time
}

// expired reports whether the service would have dropped the blocks by now.
func (s *stagedBlocks) expired(now time.Time) bool {
	return len(s.byID) > 0 && now.Sub(s.last) > stagedRetention
}

// put stages a block, in place of an earlier one of the same id.
func (s *stagedBlocks) put(b block, now time.Time) error {
	_, again := s.byID[b.id]
	if !again {
		if len(s.byID) >= maxStagedBlocks {
			return errTooManyBlocks
		}
		s.order = append(s.order, b.id)
	}
	if s.byID == nil {
		s.byID = make(map[string]block)
	}
	s.byID[b.id] = b
	s.last = now
	return nil
}

// idLength is the length that all block ids of the blob have, or 0 while it
// has no blocks. Azure documents one length for all blocks of a blob; whether
// it also compares with committed ones is not stated, so the stricter reading
// is taken here.
func (b *blob) idLength() int {
	if len(b.staged.order) > 0 {
		return len(b.staged.order[0])
	}
	if b.current != nil && b.current.fromBlocks && len(b.current.content.blocks) > 0 {
		return len(b.current.content.blocks[0].id)
	}
	return 0
}

// blockChoice is one entry of a block list: an id, and where to look for it.
type blockChoice struct {
	id   string
	from blockSource
}

// blockSource is the element name of a block list's entry.
type blockSource string

const (
	fromCommitted   blockSource = "Committed"
	fromUncommitted blockSource = "Uncommitted"
	fromLatest      blockSource = "Latest" // staged, else committed
)

// choose resolves a block list against the blob's blocks.
func (b *blob) choose(list []blockChoice) ([]block, error) {
	committed := make(map[string]block)
	if b.current != nil && b.current.fromBlocks {
		for _, c := range b.current.content.blocks {
			committed[c.id] = c
		}
	}
	chosen := make([]block, 0, len(list))
	for _, choice := range list {
		var found block
		var ok bool
		if choice.from != fromCommitted {
			found, ok = b.staged.byID[choice.id]
		}
		if !ok && choice.from != fromUncommitted {
			found, ok = committed[choice.id]
		}
		if !ok {
			return nil, errInvalidBlockList.because("%s block %q", choice.from, encodeBlockID(choice.id))
		}
		chosen = append(chosen, found)
	}
	return chosen, nil
}

// list returns the staged blocks in the order of their first staging.
func (s *stagedBlocks) list() []block {
	blocks := make([]block, len(s.order))
	for i, id := range s.order {
		blocks[i] = s.byID[id]
	}
	return blocks
}

// decodeBlockID returns the bytes of a block id: base64 of 1 to 64 bytes.
func decodeBlockID(text string) (string, error) {
	id, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(id) == 0 || len(id) > maxBlockID {
		return "", errInvalidBlockID.because("%q", text)
	}
	return string(id), nil
}

func encodeBlockID(id string) string {
	return base64.StdEncoding.EncodeToString([]byte(id))
}

// parseBlockList reads <BlockList> with its entries in their order.
func parseBlockList(body []byte) ([]blockChoice, error) {
	list, err := decodeBlockList(xml.NewDecoder(bytes.NewReader(body))) //nolint:gosec // decoding clients' XML is the task
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return nil, errInvalidXML.because("%v", err)
	}
	if len(list) > maxBlocks {
		return nil, errBlockListTooLong.because("%d are listed", len(list))
	}
	return list, err
}

func decodeBlockList(d *xml.Decoder) ([]blockChoice, error) {
	var list []blockChoice
	inside := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && inside {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !inside {
			if inside = start.Name.Local == "BlockList"; !inside {
				return nil, fmt.Errorf("<%s> where <BlockList> belongs", start.Name.Local)
			}
			continue
		}
		choice, err := decodeBlockChoice(d, start)
		if err != nil {
			return nil, err
		}
		list = append(list, choice)
	}
}

func decodeBlockChoice(d *xml.Decoder, start xml.StartElement) (blockChoice, error) {
	from := blockSource(start.Name.Local)
	switch from {
	case fromCommitted, fromUncommitted, fromLatest:
	default:
		return blockChoice{}, fmt.Errorf("<%s> in a block list", from)
	}
	var text string
	if err := d.DecodeElement(&text, &start); err != nil {
		return blockChoice{}, err
	}
	id, err := decodeBlockID(strings.TrimSpace(text))
	return blockChoice{id: id, from: from}, err
}

func writeBlocks(doc *xmlDoc, blocks []block) {
	for _, b := range blocks {
		doc.open("Block")
		doc.text("Name", encodeBlockID(b.id))
		doc.number("Size", int64(len(b.data)))
		doc.close("Block")
	}
}
