package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Index is what is known of a folder that was scanned.
type Index struct {
	folder  string
	limits  Limits
	entries int
	size    int64
	digest  uint64 // of everything but the bytes of files

	pieces   []piece // of the stream; nil for a folder with too many entries
	compared bool    // there are files among them

	// OpenWith calls a function that opens a file, and may call it again after an error.
	// Nil calls it once.
	OpenWith func(open func() error) error
}

// Scan reads the names and facts of a folder, which must no longer change. The error wraps
// [ErrTooLarge] or [ErrUnfit] if the folder cannot be stored, and [ErrChanged] if it changes
// all the time. When ctx is cancelled, the scan ends with its error.
func Scan(ctx context.Context, dir string, l Limits) (*Index, error) {
	for range 3 {
		index, newest, err := scan(ctx, dir, l)
		if err != nil || !unsettled(newest, time.Now()) {
			return index, err
		}
		time.Sleep(settle)
	}
	return nil, fmt.Errorf("the folder %w", ErrChanged)
}

// scan also returns the time of the last change in the folder.
func scan(ctx context.Context, dir string, l Limits) (_ *Index, newest time.Time, err error) {
	p, err := newPass(ctx, dir, l)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	x := &Index{folder: dir, limits: l}
	var header []byte
	for {
		e, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		if header, err = e.appendHeader(header[:0], x.size); err != nil {
			return nil, time.Time{}, fmt.Errorf("%w: %q: %w", ErrUnfit, e.path, err)
		}
		x.add(e, header)
	}
	if x.size += trailer; x.size > l.Bytes {
		return nil, time.Time{}, fmt.Errorf("%w: it amounts to %d bytes, of %d allowed", ErrTooLarge, x.size, l.Bytes)
	}
	x.digest = p.digest.Sum64()
	return x, p.newest, nil
}

// Entries is the number of files, folders and links.
func (x *Index) Entries() int { return x.entries }

// Size is the length of the stream in bytes.
func (x *Index) Size() int64 { return x.size }
