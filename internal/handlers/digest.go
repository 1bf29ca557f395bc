package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/job"
)

// rangeSize is the size of one read, in bytes: a job holds that much in memory, and a stop
// loses at most that. It is a multiple of the hash's block size, so that a state between
// two ranges contains no bytes of the blob.
const rangeSize = 4 << 20

// maxRestarts is how often a job starts over in all its runs because its blob changed.
// Otherwise a blob that changes faster than it can be read would keep the job alive for
// ever, since every range is progress.
const maxRestarts = 5

// Digest is the handler of the kind "digest": the SHA-256 of a blob. The
// payload is a [DigestPayload], the result a [DigestResult].
//
// It reads the blob in ranges of 4 MiB into one buffer, all of the same version: with
// If-Match and the ETag that the blob had at the start, or the version that the payload
// names. After every range it reports the state of the hash. If the blob changes, it
// starts again at the beginning, once in a run.
type Digest struct {
	container func(name string) *container.Client
	allowed   []string
	log       *slog.Logger
}

// NewDigest returns a handler that reads from the allowed containers only. container
// returns the client of one. Every hashed range is logged at debug level.
func NewDigest(container func(name string) *container.Client, allowed []string, log *slog.Logger) *Digest {
	return &Digest{container: container, allowed: slices.Clone(allowed), log: log}
}

// Run implements [job.Handler].
func (d *Digest) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	p, err := d.payload(j)
	if err != nil {
		return nil, job.Permanent(fmt.Errorf("payload of a digest job: %w", err))
	}
	b, err := openSource(d.container, blobName{p.Container, p.Blob, p.Version})
	if err != nil {
		return nil, err
	}
	c, err := begin(ctx, j, b)
	if err != nil {
		return nil, err
	}
	err = d.hash(ctx, j, b, c)
	if errors.Is(err, blobref.ErrChanged) {
		if c, err = startOver(ctx, b, c.restarts); err == nil {
			err = d.hash(ctx, j, b, c)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.result(p)
}

// payload decodes the payload, and checks that its container is allowed.
func (d *Digest) payload(j *job.Job) (DigestPayload, error) {
	p, err := parseDigestPayload(j.Payload)
	if err != nil {
		return DigestPayload{}, err
	}
	if !slices.Contains(d.allowed, p.Container) {
		return DigestPayload{}, fmt.Errorf("container %.80q is not one that this worker may read; --data-container allows it", p.Container)
	}
	return p, nil
}

// begin continues from the saved state, or starts at the beginning of the blob.
func begin(ctx context.Context, j *job.Job, b *source) (*cursor, error) {
	if err := j.CheckVersion(digestStateVersion); err != nil {
		return nil, err
	}
	state, _, ok := j.Saved()
	if !ok {
		return start(ctx, b)
	}
	c, err := decodeState(state)
	if err != nil {
		return nil, job.Permanent(fmt.Errorf("recorded state of a digest job: %w", err))
	}
	return c, nil
}

// start reads the blob's ETag, which identifies the bytes to hash from here on.
func start(ctx context.Context, b *source) (*cursor, error) {
	etag, size, err := b.properties(ctx)
	if err != nil {
		return nil, err
	}
	return newCursor(etag, size), nil
}

// startOver is start for a blob that has changed while it was read.
func startOver(ctx context.Context, b *source, restarts int) (*cursor, error) {
	if restarts >= maxRestarts {
		return nil, job.Permanent(fmt.Errorf("%s keeps changing while it is read; the job started over %d times", b, restarts))
	}
	c, err := start(ctx, b)
	if err != nil {
		return nil, err
	}
	c.restarts = restarts + 1
	return c, nil
}

// hash hashes the rest of the blob. It hashes and reports each complete range before it
// checks the context, so that no hashed range is lost.
func (d *Digest) hash(ctx context.Context, j *job.Job, b *source, c *cursor) error {
	buffer := make([]byte, min(rangeSize, c.size-c.offset))
	for c.offset < c.size {
		offset := c.offset
		data := buffer[:min(rangeSize, c.size-offset)]
		if err := b.read(ctx, data, offset, c.etag); err != nil {
			return err
		}
		c.add(data)
		progress, err := c.progress()
		if err != nil {
			return err
		}
		j.Report(progress)
		d.log.DebugContext(ctx, "range hashed", "job_id", j.ID, "offset", offset, "bytes", len(data))
	}
	return nil
}

// DigestPayload names the blob to hash. Unknown fields are ignored.
type DigestPayload struct {
	// Container must be a container that the worker was allowed to read.
	Container string `json:"container"`

	// Blob is the blob's name as a listing shows it: not a URL, not escaped.
	Blob string `json:"blob"`

	// Version is the id of one version of the blob, on accounts that keep
	// versions. Empty means the version that is current when the job starts.
	Version string `json:"version,omitempty"`
}

// parseDigestPayload returns an error that names the field that is wrong.
func parseDigestPayload(raw []byte) (DigestPayload, error) {
	var p DigestPayload
	if err := decodePayload(raw, &p, `{"container":"data","blob":"2026/a.tar"}`); err != nil {
		return DigestPayload{}, err
	}
	return p, firstWrong(sourceFields(p.Container, p.Blob, p.Version))
}
