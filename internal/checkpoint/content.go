package checkpoint

// content is what a write does to the record's body. The zero value leaves the
// body as it is.
type content struct {
	data   []byte   // if not nil, the body in one piece
	blocks []string // if not nil, the body as these blocks, which must be there
}

// keeps reports whether the body stays as it is.
func (c content) keeps() bool { return c.data == nil && c.blocks == nil }

// blockSet is what a claim knows of the blocks behind its record, so that it
// sends only those that are not there. Blocks are named after their content.
type blockSet struct {
	known     bool            // whether committed is right
	committed map[string]bool // blocks of the body
	staged    map[string]bool // blocks sent since, which the next commit may name
}

// noBlocks is the knowledge about a body in one piece, or about none: Put Blob
// empties the committed list and discards what was staged.
func noBlocks() blockSet { return blockSet{known: true} }

// has reports whether a block need not be sent.
func (b *blockSet) has(id string) bool { return b.committed[id] || b.staged[id] }

// wrote takes note of a write that took effect. A commit discards the staged
// blocks that it does not name.
func (b *blockSet) wrote(c content) {
	switch {
	case c.keeps():
	case c.blocks != nil:
		*b = blockSet{known: true, committed: setOf(c.blocks)}
	default:
		*b = noBlocks()
	}
}

// forget says that the body may be another than the one that was known.
func (b *blockSet) forget() { *b = blockSet{} }

func (b *blockSet) stagedNow(id string) {
	if b.staged == nil {
		b.staged = map[string]bool{}
	}
	b.staged[id] = true
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}
