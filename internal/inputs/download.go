package inputs

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // it is what the service keeps, against faults and not against forgery
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spotworker/spotworker/internal/readahead"
)

// download downloads one blob under its name in the job's folder, verifies it and makes
// it an entry. When it fails nothing is left.
func (t *task) download(ctx context.Context, file *planned, key, name string) error {
	weight := min(max(file.size, smallest), rangeLength)
	if err := t.fetcher.first.Acquire(ctx, weight); err != nil {
		return context.Cause(ctx)
	}
	defer t.fetcher.first.Release(weight)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	part, err := os.CreateTemp(t.cache.own, "part-*")
	if err != nil {
		return onDisk("make the file of an input", err)
	}
	err = t.fill(ctx, file, part)
	if closed := part.Close(); err == nil && closed != nil {
		err = onDisk("write "+file.source.String(), closed)
	}
	if err != nil {
		return errors.Join(err, removeFile(part.Name()))
	}
	if err := os.Rename(part.Name(), name); err != nil {
		return onDisk("name the file of an input", errors.Join(err, removeFile(part.Name())))
	}
	if err := t.cache.add(key, name); err != nil {
		return onDisk("add an input to the cache", err)
	}
	t.space.spend(file.size)
	t.fetched.Add(file.size)
	t.fetcher.config.Observer.CountInputs(wasFetched, 1, file.size)
	return nil
}

// fill writes a blob to a file, in ranges of which several are in flight.
func (t *task) fill(ctx context.Context, file *planned, to io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ranges := readahead.New(ctx, readahead.Config{Size: file.size, Length: rangeLength, Ahead: readAhead, Budget: t.fetcher.ahead},
		func(ctx context.Context, data []byte, offset int64) (struct{}, error) {
			return struct{}{}, t.fetcher.sources.read(ctx, file, data, offset)
		})
	sum := md5.New() //nolint:gosec // see above
	for {
		next, err := ranges.Next()
		switch {
		case errors.Is(err, io.EOF):
			if file.md5 != nil && !bytes.Equal(sum.Sum(nil), file.md5) {
				return fmt.Errorf("%s does not have the MD5 that the service states for it: it was damaged on the way, or its property Content-MD5 is wrong", file.source)
			}
			return nil
		case err != nil:
			return err
		case next.Err != nil:
			return next.Err
		}
		if file.md5 != nil {
			_, _ = sum.Write(next.Data)
		}
		if _, err := to.Write(next.Data); err != nil {
			return onDisk("write "+file.source.String(), err)
		}
	}
}
