package inputs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/storage/readahead"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// Config has the settings and parts of a [Fetcher].
type Config struct {
	// Folder is the cache's folder, which is made when the first job with inputs comes.
	Folder string

	// Limit is how many bytes the cache may have. Default: half of its file system.
	Limit int64

	// Verify compares the content of an entry with the download at each use of it: for a
	// worker whose programs run as its own user and can change entries.
	Verify bool

	// Boot tells one start of the machine from the next; empty if that is not known.
	Boot string

	// Account is the account of the jobs and Endpoint its blob endpoint. Private are its
	// containers that no input may come from, Allowed the only containers that inputs may
	// come from; empty for all others.
	Account          Containers
	Endpoint         string
	Private, Allowed []string

	// Files is a container with the start of names, as CONTAINER/PREFIX, that is allowed besides:
	// the files that jobs bring. Optional.
	Files string

	// Others are containers of other accounts that inputs may come from, by
	// [named.AccountURL], a slash, and their names.
	Others map[string]*container.Client

	// Observe counts files. Optional.
	Observe observe.Observer
}

// Bounds of the downloads of a worker.
const (
	// rangeLength is how much one call reads, in bytes.
	rangeLength = 4 << 20

	// readAhead is how many ranges of one blob are in memory at most, and aheadPlaces how
	// many of all blobs besides the first one of each.
	readAhead   = 8
	aheadPlaces = 16

	// firstRanges is the memory for the first range of each blob that is downloaded. A
	// blob counts smallest at least, so that 32 small blobs are downloaded at once.
	firstRanges = 64 << 20
	smallest    = 2 << 20
)

// Connections is how many calls for inputs are in flight at most.
const Connections = firstRanges/smallest + aheadPlaces

// Fetcher fetches the inputs of a worker's jobs.
type Fetcher struct {
	config  Config
	sources sources

	first  *semaphore.Weighted
	ahead  readahead.Budget
	flight singleflight.Group

	mu    sync.Mutex
	cache *cache // nil until it is needed
}

// New returns a fetcher. It touches nothing until a job has inputs.
func New(c Config) *Fetcher {
	if c.Observe == nil {
		c.Observe = observe.Nothing
	}
	own, err := named.AccountURL(c.Endpoint)
	if err != nil {
		own = c.Endpoint // of an emulator
	}
	return &Fetcher{
		config:  c,
		sources: sources{account: c.Account, own: own, others: c.Others, allowed: c.Allowed, private: c.Private, files: c.Files},
		first:   semaphore.NewWeighted(firstRanges), ahead: readahead.NewBudget(aheadPlaces),
	}
}

// open returns the cache. It opens the cache if that was not done yet, and again if a cleaner
// of temporary files has removed this worker's folder.
func (f *Fetcher) open() (*cache, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache != nil && f.cache.isThere() {
		return f.cache, nil
	}
	c, err := openCache(f.config.Folder, f.config.Limit, f.config.Boot)
	if err != nil {
		return nil, onDisk("open the cache of inputs", err)
	}
	switch {
	case f.cache != nil:
		c.sums = f.cache.sums
		_ = f.cache.lock.Close()
	case f.config.Verify:
		c.sums = &sums{all: map[sum]sum{}}
	}
	f.cache = c
	return c, nil
}

// Close removes the files that only this worker needs.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache == nil {
		return nil
	}
	err := f.cache.close()
	f.cache = nil
	return err
}

// onDisk translates an error of the file system: it is this machine's and not the job's.
func onDisk(doing string, err error) error {
	if resource.IsDiskFull(err) {
		err = fmt.Errorf("%w: %w", errNoSpace, err)
	}
	return job.Unavailable(fmt.Errorf("%s: %w; not counted as a failure", doing, err))
}

// Held are the input files of a job, held in the cache until Close.
type Held struct {
	Folder string
	Files  []job.InputFile

	// Fetched and Cached are the bytes that were downloaded and found in the cache, Took
	// how long it took.
	Fetched, Cached int64
	Took            time.Duration
}

// Close releases the files. The folder must no longer be used.
func (h *Held) Close() error { return sandbox.RemoveTree(h.Folder) }

// Fetch makes the files of a plan available in a folder. When it fails, nothing of it is
// left but whole cache entries. The error is permanent or [job.Unavailable] as Resolve's;
// [IsChanged] and [IsNoSpace] distinguish two cases.
func (f *Fetcher) Fetch(ctx context.Context, plan *Plan) (*Held, error) {
	begun := time.Now()
	c, err := f.open()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(c.own, "job-*")
	if err != nil {
		return nil, onDisk("make the folder of the inputs", err)
	}
	t := task{fetcher: f, cache: c, plan: plan, folder: folder, ctx: ctx, parts: map[string]keptPart{}}
	if err := t.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(err, sandbox.RemoveTree(folder))
	}
	held := &Held{Folder: folder, Files: t.files(), Fetched: t.fetched.Load(), Took: time.Since(begun)}
	held.Cached = plan.bytes - held.Fetched
	return held, nil
}

// task is the fetch of one plan.
type task struct {
	fetcher *Fetcher
	cache   *cache
	plan    *Plan
	folder  string
	space   *reservation
	fetched atomic.Int64

	ctx   context.Context     // of the whole fetch
	parts map[string]keptPart // what earlier tries left of its blobs
}

// name returns where a file of the plan goes.
func (t *task) name(file *planned) string {
	return filepath.Join(t.folder, filepath.FromSlash(file.path))
}

func (t *task) key(file *planned) string { return file.key(t.fetcher.sources.own) }

func (t *task) files() []job.InputFile {
	files := make([]job.InputFile, len(t.plan.files))
	for i := range t.plan.files {
		p := &t.plan.files[i]
		files[i] = job.InputFile{
			Name: p.path, File: t.name(p), Size: p.size,
			Account: p.account, Container: p.container, Blob: p.blob, ETag: string(p.etag),
		}
	}
	return files
}

func (t *task) run(ctx context.Context) error {
	missing, need, err := t.holdCached(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	have, err := t.takeParts(missing)
	defer t.dropParts() // parts that another job's download made needless
	if err != nil {
		return onDisk("continue the download of an input", err)
	}
	if need > 0 {
		space, out, err := t.cache.reserve(need, have, t.plan.bytes)
		if out.files > 0 {
			t.fetcher.config.Observe(observe.InputsUsed{Result: observe.InputEvicted, Files: out.files, Bytes: out.bytes})
		}
		if err != nil {
			return explainReserve(err)
		}
		t.space = space
		defer func() { _ = space.settle() }()
	}
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(Connections)
	for _, file := range missing {
		if workCtx.Err() != nil {
			break
		}
		work.Go(func() error { return t.fetch(workCtx, file) })
	}
	return errors.Join(work.Wait(), context.Cause(ctx))
}

// takeParts takes what earlier tries left of the files, and returns how many bytes those
// are.
func (t *task) takeParts(missing []*planned) (bytes int64, err error) {
	for _, file := range missing {
		key := t.key(file)
		if _, taken := t.parts[key]; taken || file.size <= rangeLength {
			continue
		}
		part, ok, err := t.cache.takePart(key, t.folder)
		if err != nil {
			return 0, err
		}
		if ok {
			t.parts[key] = part
			bytes += part.size
		}
	}
	return bytes, nil
}

// dropParts removes the parts that were taken and are still there.
func (t *task) dropParts() {
	for _, part := range t.parts {
		_ = os.Remove(part.name)
	}
}

// explainReserve marks the error of a reservation: inputs that never fit here are a
// failure, since another machine may have more room.
func explainReserve(err error) error {
	if _, ok := errors.AsType[*tooLargeError](err); ok {
		return err
	}
	return onDisk("make room for the job's inputs", err)
}

// holdCached makes the folders, holds the entries that are in the cache, and returns the
// other files and how many bytes their downloads take.
func (t *task) holdCached(ctx context.Context) (missing []*planned, need int64, err error) {
	made, counted := map[string]bool{}, map[string]bool{}
	hits, bytes := int64(0), int64(0)
	for i := range t.plan.files {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		file := &t.plan.files[i]
		if dir := filepath.Dir(t.name(file)); !made[dir] {
			if err := os.MkdirAll(dir, folderMode); err != nil {
				return nil, 0, onDisk("make a folder of the inputs", err)
			}
			made[dir] = true
		}
		held, err := t.holdEntry(ctx, file, t.key(file), t.name(file))
		if err != nil {
			return nil, 0, onDisk("link an input from the cache", err)
		}
		if held {
			hits, bytes = hits+1, bytes+file.size
			continue
		}
		missing = append(missing, file)
		if key := t.key(file); !counted[key] {
			counted[key] = true
			need += file.size
		}
	}
	if hits > 0 {
		t.fetcher.config.Observe(observe.InputsUsed{Result: observe.InputCached, Files: hits, Bytes: bytes})
	}
	return missing, need, nil
}

// fetch makes one file available that was not in the cache: it downloads it, or waits for
// another job that does.
func (t *task) fetch(ctx context.Context, file *planned) error {
	key, name := t.key(file), t.name(file)
	for {
		var leads atomic.Bool
		result := t.fetcher.flight.DoChan(key, func() (any, error) {
			leads.Store(true)
			return nil, t.downloadOnce(ctx, file, key, name)
		})
		select {
		case <-ctx.Done():
			if leads.Load() {
				<-result // otherwise the download did not start, and will not
			}
			return context.Cause(ctx)
		case r := <-result:
			if leads.Load() {
				return r.Err
			}
		}
		if held, err := t.hold(ctx, file, key, name); held || err != nil {
			return err
		}
	}
}

// downloadOnce downloads a file unless another job did that since the cache was asked.
func (t *task) downloadOnce(ctx context.Context, file *planned, key, name string) error {
	if held, err := t.hold(ctx, file, key, name); held || err != nil {
		return err
	}
	return t.download(ctx, file, key, name)
}

// hold is holdEntry for one file that another job may have fetched.
func (t *task) hold(ctx context.Context, file *planned, key, name string) (bool, error) {
	held, err := t.holdEntry(ctx, file, key, name)
	if err != nil {
		return false, onDisk("link an input from the cache", err)
	}
	if held {
		t.fetcher.config.Observe(observe.InputsUsed{Result: observe.InputCached, Files: 1, Bytes: file.size})
	}
	return held, nil
}
