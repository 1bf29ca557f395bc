package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spotworker/spotworker/internal/storage/readahead"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// download downloads one blob under its name in the job's folder, verifies it and makes
// it an entry. It continues an earlier try's download of the same version. When it fails
// nothing is left, but for a part that the next try continues.
func (t *task) download(ctx context.Context, file *planned, key, name string) error {
	weight := min(max(file.size, smallest), rangeLength)
	if err := t.fetcher.first.Acquire(ctx, weight); err != nil {
		return context.Cause(ctx)
	}
	defer t.fetcher.first.Release(weight)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	part, from, err := t.openPart(key)
	if err != nil {
		return onDisk("make the file of an input", err)
	}
	broke, err := t.fill(ctx, file, key, part, from)
	if closed := part.Close(); err == nil && closed != nil {
		err = onDisk("write "+file.source.String(), closed)
	}
	if err != nil && broke && t.ctx.Err() == nil && !job.IsPermanent(err) && !IsChanged(err) {
		return errors.Join(err, t.cache.keepPart(key, part.Name()))
	}
	if err != nil {
		return errors.Join(err, removeFile(part.Name()))
	}
	if err := whileHeld(func() error { return os.Rename(part.Name(), name) }); err != nil {
		return onDisk("name the file of an input", errors.Join(err, removeFile(part.Name())))
	}
	if err := t.cache.add(key, name); err != nil {
		return onDisk("add an input to the cache", err)
	}
	t.space.spend(file.size)
	t.fetched.Add(file.size)
	t.fetcher.config.Observe(observe.InputsUsed{Result: observe.InputFetched, Files: 1, Bytes: file.size})
	return nil
}

// openPart opens the file that a blob is downloaded to, and returns how much of it an
// earlier try left there.
func (t *task) openPart(key string) (part *os.File, from int64, err error) {
	kept, ok := t.parts[key]
	if !ok {
		part, err = os.CreateTemp(t.cache.own, "part-*")
		return part, 0, err
	}
	if part, err = os.OpenFile(kept.name, os.O_RDWR, 0); err != nil {
		return nil, 0, err
	}
	return part, kept.size, nil
}

// fill writes a blob to a file that has the bytes up to from, in ranges. Several are in
// flight. broke reports whether it failed because no more could be read: the bytes in the
// file are right.
func (t *task) fill(ctx context.Context, file *planned, key string, to *os.File, from int64) (broke bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	sum, from, err := t.hashPart(file, key, to, from)
	if err != nil {
		return false, onDisk("read a part of "+file.source.String(), err)
	}
	if _, err := to.Seek(from, io.SeekStart); err != nil {
		return false, onDisk("continue "+file.source.String(), err)
	}
	ranges := readahead.New(ctx, readahead.Plan{Size: file.size - from, Length: rangeLength, Ahead: readAhead, Budget: t.fetcher.ahead},
		func(ctx context.Context, data []byte, offset int64) (struct{}, error) {
			return struct{}{}, t.fetcher.sources.read(ctx, file, data, from+offset)
		})
	for {
		next, err := ranges.Next()
		switch {
		case errors.Is(err, io.EOF):
			if !sum.matches(file) {
				return false, fmt.Errorf("%s does not have the MD5 that the service states for it: it was damaged on the way, or its property "+
					"Content-MD5 is wrong", file.source)
			}
			t.know(key, sum)
			return false, nil
		case err == nil:
			err = next.Err
		}
		if err != nil {
			t.know(partName(key), sum)
			return true, err
		}
		_, _ = sum.Write(next.Data)
		if _, err := to.Write(next.Data); err != nil {
			return false, onDisk("write "+file.source.String(), err)
		}
	}
}

// hashPart hashes the part of a blob that an earlier try left in a file, and returns how
// much of it to use: nothing if it differs from the download.
func (t *task) hashPart(file *planned, key string, in *os.File, from int64) (contentHash, int64, error) {
	h := t.newHash(file)
	if from == 0 || !h.isNeeded() {
		return h, from, nil
	}
	if _, err := io.Copy(h, io.NewSectionReader(in, 0, from)); err != nil {
		return h, 0, err
	}
	if t.cache.sums == nil {
		return h, from, nil
	}
	if want, known := t.cache.sums.get(partName(key)); known && h.sum() == want {
		return h, from, nil
	}
	return t.newHash(file), 0, in.Truncate(0)
}

// keptPrefix begins the names of parts that the next try continues.
const keptPrefix = "kept-"

// keptPart is the part of a blob that a broken try has downloaded.
type keptPart struct {
	name string
	size int64
}

// keepPart keeps the downloaded part of a version of a blob, in whole ranges, for the
// next try. It counts as used until then.
func (c *cache) keepPart(key, name string) error {
	info, err := os.Stat(name)
	if err != nil || info.Size() < rangeLength {
		return errors.Join(err, removeFile(name))
	}
	return c.locked(func(lock *os.File) error {
		kept, before := filepath.Join(c.own, keptPrefix+key), int64(0)
		if old, err := os.Lstat(kept); err == nil {
			before = old.Size() // another job's
		}
		used, err := readUsed(lock)
		if err == nil {
			err = os.Rename(name, kept)
		}
		if err != nil {
			return errors.Join(err, removeFile(name))
		}
		return writeUsed(lock, max(used+info.Size()-before, 0))
	})
}

// takePart takes a part that was kept, for the job with that folder. It does not count as
// used any more, since a reservation for the whole blob follows.
func (c *cache) takePart(key, folder string) (part keptPart, ok bool, err error) {
	kept := filepath.Join(c.own, keptPrefix+key)
	if _, err := os.Lstat(kept); err != nil {
		return keptPart{}, false, nil //nolint:nilerr // there is none
	}
	err = c.locked(func(lock *os.File) error {
		info, err := os.Lstat(kept)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was evicted
		}
		if err != nil {
			return err
		}
		used, err := readUsed(lock)
		if err != nil {
			return err
		}
		part, ok = keptPart{name: filepath.Join(c.own, "part-"+key+"-"+filepath.Base(folder)), size: info.Size()}, true
		return errors.Join(os.Rename(kept, part.name), writeUsed(lock, max(used-part.size, 0)))
	})
	return part, ok, err
}

// removeParts removes this worker's parts of blobs whose downloads broke, to make room.
func (c *cache) removeParts() {
	kept, _ := filepath.Glob(filepath.Join(c.own, keptPrefix+"*")) // the pattern is well-formed
	for _, name := range kept {
		_ = os.Remove(name)
	}
}
