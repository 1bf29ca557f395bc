package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/internal/storage/readahead"
)

// Timeouts of one call, including the SDK's retries. A caller with less time passes
// a context that ends sooner.
const (
	callTimeout     = 20 * time.Second
	transferTimeout = time.Minute // for calls with a body
)

// maxBody is the largest body that is read into memory in one piece, in bytes: a state
// which was reported in one piece.
const maxBody = 8 << 20

// ErrNotFound means that the job has no record.
var ErrNotFound = errors.New("there is no record of this job")

// MaxStream is the largest state, in bytes.
const MaxStream = 32 << 30

// Connections is how many connections to keep for large states.
const Connections = blocks.Connections

// Store reads and writes the records of jobs, one blob each, named <hhh>/<job id>.
type Store struct {
	container *container.Client
	blobs     blobs.Container
	unit      int // blocks.Unit, but for tests
	page      int // blocks.Page, but for tests
	cutter    func() *chunks.Cutter
	maxStream int64 // MaxStream, but for tests
	budget    readahead.Budget
}

// NewStore returns the store of the records in container c.
func NewStore(c *container.Client) *Store {
	return &Store{
		container: c, blobs: blobs.In(c), unit: blocks.Unit, page: blocks.Page, cutter: chunks.New, maxStream: MaxStream,
		budget: readahead.NewBudget(transferBuffers),
	}
}

// WithChunks makes blocks, and the units of hashes, that many bytes long. Tests of other
// packages use it to get states of several blocks that are small, and have no pages.
func (s *Store) WithChunks(size int) *Store {
	s.unit, s.page, s.cutter = size, 0, func() *chunks.Cutter { return chunks.Fixed(size) }
	return s
}

// Check reports whether the container can be reached.
func (s *Store) Check(ctx context.Context) error {
	if err := s.blobs.Check(ctx); err != nil {
		return fmt.Errorf("reach the container of job records: %w", err)
	}
	return nil
}

// Lookup reads the record of a delivery's job and returns the delivery's right. The
// record is the zero value if there is none.
func (s *Store) Lookup(ctx context.Context, d Delivery) (Record, Ruling, error) {
	found, err := s.find(ctx, d.ID)
	if err != nil {
		return Record{}, 0, err
	}
	if found == nil {
		return Record{}, Create, nil
	}
	return *found, OnDelivery(found, d, found.ReadAt), nil
}

// Read returns the record of a job, or an error that wraps [ErrNotFound].
func (s *Store) Read(ctx context.Context, id string) (Record, error) {
	found, err := s.find(ctx, id)
	if err == nil && found == nil {
		err = fmt.Errorf("read record of job %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Record{}, err
	}
	return *found, nil
}

// Result returns the result of a job that is [Done].
func (s *Store) Result(ctx context.Context, id string) ([]byte, error) {
	r, err := s.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Status != Done {
		return nil, fmt.Errorf("job %s has no result: it is %s", id, r.Status)
	}
	return s.body(ctx, r)
}

// List yields all records whose job id starts with prefix (all for ""), in unspecified
// order. It costs one call per 5,000 records of the container. Blobs that are no records
// are skipped.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return s.ListAnd(ctx, prefix, func(string) {})
}

// ListAnd is List, and calls skipped with the name of each blob whose name is no
// record's.
func (s *Store) ListAnd(ctx context.Context, prefix string, skipped func(blob string)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for b, err := range s.blobs.List(ctx, "", true) {
			if err != nil {
				yield(Record{}, fmt.Errorf("list records: %w", err))
				return
			}
			r, ok := recordOf(b)
			if !ok {
				skipped(b.Name)
				continue
			}
			if strings.HasPrefix(r.ID, prefix) && !yield(r, nil) {
				return
			}
		}
	}
}

// recordOf returns the record of a listed blob. An unreadable record has its id and
// version 0. ok is false for a blob whose name is no record's.
func recordOf(b blobs.Blob) (r Record, ok bool) {
	_, id, _ := strings.Cut(b.Name, "/")
	if jobid.Validate(id) != nil || b.Name != jobid.Path(id) {
		return Record{}, false
	}
	r, _ = parse(id, b.Metadata)
	r.ETag, r.Size, r.ModifiedAt, r.ReadAt = b.ETag, b.Size, b.ModifiedAt, b.ReadAt
	return r, true
}

// find reads a record. It returns nil without an error if there is none.
func (s *Store) find(ctx context.Context, id string) (*Record, error) {
	b, err := s.blobs.Find(ctx, jobid.Path(id))
	if blobs.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of job %s: %w", id, err)
	}
	r, err := parse(id, b.Metadata)
	if err != nil && !errors.Is(err, errUnreadable) {
		return nil, err
	}
	r.ETag, r.Size, r.ModifiedAt, r.ReadAt = b.ETag, b.Size, b.ModifiedAt, b.ReadAt
	return &r, nil
}

// body reads the record's body, under the record's ETag. The error wraps
// [ErrDamaged] if the body is larger than any that is written in one piece.
func (s *Store) body(ctx context.Context, r Record) ([]byte, error) {
	_, data, err := s.blobs.Within(transferTimeout).GetIf(ctx, jobid.Path(r.ID), maxBody, blobs.Same(r.ETag))
	if errors.Is(err, blobs.ErrTooLarge) {
		err = fmt.Errorf("%w: its body has more than %d bytes", ErrDamaged, maxBody)
	}
	if err != nil {
		return nil, fmt.Errorf("read body of job %s: %w", r.ID, err)
	}
	return data, nil
}

// put writes a record on condition that the blob has that ETag; with an empty ETag it
// creates the record.
func (s *Store) put(ctx context.Context, r *Record, etag azcore.ETag, body content) (azcore.ETag, error) {
	if body.keeps() && etag != "" {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		reply, err := s.blob(r.ID).SetMetadata(ctx, r.metadata(), &blob.SetMetadataOptions{AccessConditions: blobs.Same(etag)})
		return value(reply.ETag), err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if body.blocks != nil {
		reply, err := s.blob(r.ID).CommitBlockList(ctx, body.blocks, &blockblob.CommitBlockListOptions{
			Metadata: r.metadata(), AccessConditions: blobs.Same(etag),
		})
		return value(reply.ETag), err
	}
	reply, err := s.blob(r.ID).Upload(ctx, streaming.NopCloser(bytes.NewReader(body.data)), &blockblob.UploadOptions{
		Metadata: r.metadata(), AccessConditions: blobs.Same(etag),
	})
	return value(reply.ETag), err
}

// target is where the states of a job with that key are sent to.
func (s *Store) target(id string, key blocks.Key) blocks.Target {
	return blocks.Target{
		Blob: s.blob(id), Namer: blocks.NewNamer(key), Key: key, Unit: s.unit, Page: s.page,
		Cutter: s.cutter(), Budget: s.budget, Timeout: transferTimeout,
	}
}

// upload sends the blocks of a state that the record of the job lacks. It does not read what
// base has from an offset on. The record must exist.
func (s *Store) upload(ctx context.Context, id string, to blocks.Target, state io.Reader, known *blocks.Set, base blocks.Base,
	from int64) (blocks.Manifest, error) {
	m, err := blocks.Upload(ctx, to, known, state, base, from)
	if err != nil {
		return blocks.Manifest{}, fmt.Errorf("send state of job %s: %w", id, err)
	}
	return m, nil
}

func (s *Store) blob(id string) *blockblob.Client {
	return s.container.NewBlockBlobClient(jobid.Path(id))
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
