package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// incremental is a stream of a state that knows, without reading, which of its bytes an
// earlier stream has too. The stream of a handler may implement it.
//
// The stream may be wrong, since it looks at facts such as the times of files. So a save of
// a running job reads everything and compares. Only a write that ends the claim skips bytes,
// and only in units that were read, compared and found unchanged at the save before.
type incremental interface {
	io.ReadCloser

	// Origin identifies the content of the stream, for Unchanged of later streams.
	Origin() any

	// Unchanged yields the ranges of this stream, in ascending order, that the stream with
	// that origin has from another offset on.
	Unchanged(origin any, yield func(at, was, length int64))

	// Skip passes over the next bytes, which are in such a range, without reading them.
	Skip(bytes int64) error

	// Wrong tells the stream that it is not the same at an offset in such a range.
	Wrong(at int64)
}

// base is a recorded state with which later states are compared.
type base struct {
	origin   any // nil if the stream cannot be compared without reading it
	manifest blocks.Manifest
}

// send uploads the blocks of a stream that the record lacks. The recorded state has that hash.
// With skip the stream is not read where it is unchanged.
func (s *sender) send(ctx context.Context, head []byte, from *stream, recorded string, skip, last bool) (p prepared, wrong bool,
	err error) {
	var known blocks.Base
	if before := s.baseOf(recorded); before != nil {
		known.Manifest = before.manifest
		if known.Spans, err = from.unchanged(before.origin); err != nil {
			return prepared{}, false, err
		}
		if skip {
			known.Skip = from.skip
		}
	}
	m, err := s.upload(ctx, io.MultiReader(bytes.NewReader(head), from), known, int64(len(head)), last)
	if err != nil {
		return prepared{}, false, err
	}
	for _, at := range m.Wrong {
		from.wrong(at)
	}
	p = prepared{hash: m.Hash, key: s.key, size: m.Size, blocks: len(m.Blocks), layout: m.Place,
		content: content{blocks: m.Blocks, base: &base{from.origin(), m}}}
	return p, len(m.Wrong) > 0, nil
}

// baseOf returns the recorded state, which has that hash, if this claim has saved it or read it
// to its end.
func (s *sender) baseOf(recorded string) *base {
	for _, known := range []*base{s.base, s.restored.Load()} {
		if known != nil && known.manifest.Hash == recorded {
			return known
		}
	}
	return nil
}

// origin is Origin of an incremental stream, and nil of another one.
func (s *stream) origin() any {
	if from, ok := s.from.(incremental); ok {
		return from.Origin()
	}
	return nil
}

// unchanged returns the ranges of Unchanged, none if the stream is not incremental.
func (s *stream) unchanged(origin any) (spans []blocks.Span, err error) {
	defer recoverPanic(&err)
	from, ok := s.from.(incremental)
	if !ok || origin == nil {
		return nil, nil
	}
	end := int64(0)
	from.Unchanged(origin, func(at, was, length int64) {
		if at < end || was < 0 || length <= 0 {
			err = fmt.Errorf("%w: the range of %d bytes at %d, before at %d, is impossible", ErrUnreadable, length, at, was)
		}
		end = at + length
		spans = append(spans, blocks.Span{At: at, Was: was, Length: length})
	})
	return spans, err
}

// skip passes over bytes of an incremental stream.
func (s *stream) skip(bytes int64) (err error) {
	defer recoverPanic(&err)
	if s.read += bytes; s.read > s.limit {
		return fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, s.limit)
	}
	if err := s.from.(incremental).Skip(bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return nil
}

// wrong is Wrong of an incremental stream.
func (s *stream) wrong(at int64) {
	if from, ok := s.from.(incremental); ok {
		from.Wrong(at)
	}
}
