package storage

import (
	"encoding/base64"
	"time"
)

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
