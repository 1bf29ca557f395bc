package inputs

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the service keeps it
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// sum is the first half of a SHA-256: no one finds another content with the same one.
type sum [sha256.Size / 2]byte

// sums are the sums of this worker's downloads, in its memory: sums on the disk could be
// changed together with the entries. It is nil where no program can change entries.
type sums struct {
	mu  sync.Mutex
	all map[sum]sum // by the sum of the name
}

// maxSums bounds the memory of sums, to some 6 MB. An entry whose sum was forgotten is
// downloaded again.
const maxSums = 1 << 17

func nameSum(name string) sum {
	full := sha256.Sum256([]byte(name))
	return sum(full[:len(sum{})])
}

func (s *sums) get(name string) (content sum, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok = s.all[nameSum(name)]
	return content, ok
}

func (s *sums) put(name string, content sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.all {
		if len(s.all) < maxSums {
			break
		}
		delete(s.all, other)
	}
	s.all[nameSum(name)] = content
}

// partName is the name of the sum of a part that the next try continues.
func partName(key string) string { return keptPrefix + key }

// contentHash hashes a content, as far as something is compared with it.
type contentHash struct {
	md5    hash.Hash // nil if the service has none
	sha256 hash.Hash // nil if no program can change entries
}

func (t *task) newHash(file *planned) contentHash {
	var h contentHash
	if file.md5 != nil {
		h.md5 = md5.New() //nolint:gosec // see above
	}
	if t.cache.sums != nil {
		h.sha256 = sha256.New()
	}
	return h
}

func (h contentHash) isNeeded() bool { return h.md5 != nil || h.sha256 != nil }

// Write implements [io.Writer]. It never fails.
func (h contentHash) Write(p []byte) (int, error) {
	for _, one := range []hash.Hash{h.md5, h.sha256} {
		if one != nil {
			_, _ = one.Write(p)
		}
	}
	return len(p), nil
}

// matches reports whether the content has the MD5 that the service states, if it has one.
func (h contentHash) matches(file *planned) bool {
	return h.md5 == nil || bytes.Equal(h.md5.Sum(nil), file.md5)
}

func (h contentHash) sum() (content sum) {
	copy(content[:], h.sha256.Sum(nil))
	return content
}

// know records the sum of a hashed file.
func (t *task) know(name string, h contentHash) {
	if t.cache.sums != nil {
		t.cache.sums.put(name, h.sum())
	}
}

// holdEntry holds an entry of the cache for a file of the job. Where programs can change
// entries it compares the content with this worker's download, or with the service's MD5.
// An entry with neither, such as another worker's, is left out.
func (t *task) holdEntry(ctx context.Context, file *planned, key, name string) (bool, error) {
	held, err := t.cache.hold(key, file.size, name)
	if !held || err != nil || t.cache.sums == nil {
		return held, err
	}
	want, known := t.cache.sums.get(key)
	if !known && file.md5 == nil {
		return false, removeFile(name)
	}
	h := t.newHash(file)
	if known {
		h.md5 = nil
	}
	if err := h.readFile(ctx, name); err != nil {
		return false, errors.Join(err, removeFile(name))
	}
	if !h.matches(file) || known && h.sum() != want {
		t.fetcher.config.Observe(observe.InputsUsed{Result: observe.InputChanged, Files: 1, Bytes: file.size})
		return false, errors.Join(removeFile(t.cache.entry(key)), removeFile(name))
	}
	t.know(key, h)
	return true, nil
}

// hashedAtOnce is how much is hashed between two looks at whether the job was stopped.
const hashedAtOnce = 16 << 20

// readFile hashes a file.
func (h contentHash) readFile(ctx context.Context, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for err == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err = io.CopyN(h, file, hashedAtOnce)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
