package blobs

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

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// putBlock stages a block. Where the blob does not exist, its name is taken
// from now on, though a read does not find it.
func (s *Service) putBlock(r *protocol.Request) (*protocol.Reply, error) {
	id, err := decodeBlockID(r.Query.Get("blockid"))
	if err != nil {
		return nil, err
	}
	c, _, err := s.target(r)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Content-MD5") != "" || r.Header.Get("x-ms-content-crc64") != "" {
		if _, err := protocol.VerifyBody(r, "Content-MD5"); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.Rest, r.Now)
	if err := checkLease(c.committed(r.Rest, r.Now), r.Now); err != nil {
		return nil, err
	}
	b := c.change(r.Rest)
	if n := b.idLength(); n != 0 && n != len(id) {
		return nil, errInvalidBlock.Because("%d bytes before base64, not %d", len(id), n)
	}
	if err := b.staged.put(block{id: id, data: r.Data}, r.Now); err != nil {
		return nil, err
	}
	p := protocol.NewReply(http.StatusCreated)
	p.Set("Content-MD5", r.Header.Get("Content-MD5"))
	p.Set("x-ms-content-crc64", r.Header.Get("x-ms-content-crc64"))
	p.Set("x-ms-request-server-encrypted", "true")
	return p, nil
}

// putBlockList replaces a blob by the blocks that the body names, in that
// order. Staged blocks that it does not name are discarded; a request that is
// refused discards nothing. Unlike Put Blob it creates a blob for which only
// blocks were staged, under "If-None-Match: *" too.
func (s *Service) putBlockList(r *protocol.Request) (*protocol.Reply, error) {
	c, conds, err := s.target(r)
	if err != nil {
		return nil, err
	}
	metadata, err := protocol.ParseMetadata(r.Header)
	if err != nil {
		return nil, err
	}
	list, err := parseBlockList(r.Data)
	if err != nil {
		return nil, err
	}
	if _, err := protocol.VerifyBody(r, "Content-MD5"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(r.Rest, r.Now)
	old := c.committed(r.Rest, r.Now)
	if err := conds.checkWrite(old); err != nil {
		return nil, err
	}
	if conds.createOnly() && old != nil {
		return nil, errBlobExists
	}
	if err := checkLease(old, r.Now); err != nil {
		return nil, err
	}
	current := c.find(r.Rest, r.Now)
	if current == nil {
		current = &blob{}
	}
	blocks, err := current.choose(list)
	if err != nil {
		return nil, err
	}
	v := s.newVersion(r, old, metadata, requestProperties(r.Header))
	v.blocks = blocks
	v.content = protocol.NewContent(dataOf(blocks)...)
	b := c.change(r.Rest)
	b.current, b.staged = v, stagedBlocks{}
	return written(http.StatusCreated, v), nil
}

// getBlockList lists a blob's committed or staged blocks, or both. It finds
// blobs for which blocks were only staged.
func (s *Service) getBlockList(r *protocol.Request) (*protocol.Reply, error) {
	c, _, err := s.target(r)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.find(r.Rest, r.Now)
	if b == nil {
		return nil, errBlobNotFound
	}
	which := strings.ToLower(r.Query.Get("blocklisttype"))
	doc := protocol.NewXML("BlockList")
	if which != "uncommitted" {
		doc.Open("CommittedBlocks")
		if b.current != nil {
			writeBlocks(doc, b.current.blocks)
		}
		doc.Close("CommittedBlocks")
	}
	if which == "uncommitted" || which == "all" {
		doc.Open("UncommittedBlocks")
		if !b.staged.expired(r.Now) {
			writeBlocks(doc, b.staged.list())
		}
		doc.Close("UncommittedBlocks")
	}
	doc.Close("BlockList")
	p := protocol.NewXMLReply(doc)
	p.Set("x-ms-blob-content-length", "0")
	if v := b.current; v != nil {
		p.Set("ETag", v.etag)
		p.SetTime("Last-Modified", v.modified)
		p.Set("x-ms-blob-content-length", fmt.Sprint(v.content.Size()))
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
	if b.current != nil && len(b.current.blocks) > 0 {
		return len(b.current.blocks[0].id)
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
	if b.current != nil {
		for _, c := range b.current.blocks {
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
			return nil, errInvalidBlockList.Because("%s block %q", choice.from, encodeBlockID(choice.id))
		}
		chosen = append(chosen, found)
	}
	return chosen, nil
}

// dataOf returns the bytes of blocks.
func dataOf(blocks []block) [][]byte {
	data := make([][]byte, len(blocks))
	for i, b := range blocks {
		data[i] = b.data
	}
	return data
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
		return "", errInvalidBlockID.Because("%q", text)
	}
	return string(id), nil
}

func encodeBlockID(id string) string {
	return base64.StdEncoding.EncodeToString([]byte(id))
}

// parseBlockList reads <BlockList> with its entries in their order.
func parseBlockList(body []byte) ([]blockChoice, error) {
	list, err := decodeBlockList(xml.NewDecoder(bytes.NewReader(body)))
	var refused *protocol.Error
	if err != nil && !errors.As(err, &refused) {
		return nil, protocol.ErrInvalidXML.Because("%v", err)
	}
	if len(list) > maxBlocks {
		return nil, errBlockListTooLong.Because("%d are listed", len(list))
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

func writeBlocks(doc *protocol.XML, blocks []block) {
	for _, b := range blocks {
		doc.Open("Block")
		doc.Text("Name", encodeBlockID(b.id))
		doc.Number("Size", int64(len(b.data)))
		doc.Close("Block")
	}
}
