package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/klauspost/compress/zstd"

	"github.com/spotworker/spotworker/job"
)

// maxRestarts limits how often a job starts over in all its runs. Otherwise a blob that
// changes faster than it can be read would keep the job alive for ever, since every chunk
// is progress.
const maxRestarts = 5

// compressor has the settings of the kind "compress".
//
// A job reads its source in chunks. Each chunk becomes a zstd frame, and consecutive
// frames are one valid zstd stream. The job stages a frame as a block of the target and
// then reports it, so that an eviction loses the current chunk only. The last step
// commits all blocks, unless the target exists.
//
// Leftovers of an evicted worker are harmless: a block's id consists of its job, its
// number and its content, so a worker that lost the job can only stage the same block
// again. If two workers commit, the second finds the first one's target and returns the
// same result.
type compressor struct {
	container        func(name string) *container.Client
	sources, targets []string // containers that jobs may read and write
	chunk            int64    // least size of a chunk, in bytes
}

// handler returns the handler of the kind.
func (c *compressor) handler() job.Handler { return job.Typed(stateVersion, c.compress) }

func (c *compressor) compress(ctx context.Context, j *job.TypedJob[payload, state]) (*compressResult, error) {
	p := j.Payload.withDefaults()
	if err := c.allow(p); err != nil {
		return nil, job.Permanent(err)
	}
	to, err := newTarget(c.container(p.TargetContainer), p, j.Job)
	if err != nil {
		return nil, err
	}
	if made, err := to.made(ctx); made != nil || err != nil {
		return made, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(p.Level)),
		zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true)) // an empty blob becomes a frame too
	if err != nil {
		return nil, err
	}
	defer func() { _ = encoder.Close() }()
	r := &compression{TypedJob: j, source: newSource(c.container(p.Container), p), target: to, encoder: encoder, chunk: c.chunk}
	err = r.resume(ctx)
	for err == nil {
		var made *compressResult
		made, err = r.finish(ctx)
		if err == nil {
			return made, nil
		}
		if errors.Is(err, errChanged) || errors.Is(err, errBlocksGone) {
			err = r.startOver(ctx, err)
		}
	}
	return nil, err
}

// allow checks that the job may use its containers. Producers choose them, so that
// otherwise every container of the worker's identity would be open to every producer.
func (c *compressor) allow(p payload) error {
	if !slices.Contains(c.sources, p.Container) {
		return fmt.Errorf("payload: this worker may not read container %.80q; COMPRESS_FROM allows it", p.Container)
	}
	if !slices.Contains(c.targets, p.TargetContainer) {
		return fmt.Errorf("payload: this worker may not write container %.80q; COMPRESS_TO allows it", p.TargetContainer)
	}
	return nil
}

// compression is one run of a job.
type compression struct {
	*job.TypedJob[payload, state]

	source  source
	target  *target
	encoder *zstd.Encoder
	chunk   int64
}

// resume continues from the saved state, or starts at the beginning of the source.
func (r *compression) resume(ctx context.Context) error {
	if !r.Resumed {
		return r.start(ctx)
	}
	if !r.State.possible() {
		return job.Permanent(fmt.Errorf("the recorded state is inconsistent: offset %d of %d, chunk %d, %d frames",
			r.State.Offset, r.State.Size, r.State.Chunk, r.State.frames()))
	}
	err := r.target.holds(ctx, &r.State)
	if errors.Is(err, errBlocksGone) {
		return r.startOver(ctx, err)
	}
	return err
}

// start reads the source's ETag, which identifies the bytes to compress from here on.
func (r *compression) start(ctx context.Context) error {
	etag, size, err := r.source.properties(ctx)
	if err != nil {
		return err
	}
	chunk, err := chunkSize(size, r.chunk)
	if err != nil {
		return job.Permanent(err)
	}
	r.State = newState(etag, size, chunk)
	return nil
}

// startOver is start for a job whose source has changed or whose blocks are gone.
func (r *compression) startOver(ctx context.Context, cause error) error {
	restarts := r.State.Restarts
	if restarts >= maxRestarts {
		return job.Permanent(fmt.Errorf("the job started over %d times, and again: %w", restarts, cause))
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	r.State.Restarts = restarts + 1
	job.Logger(ctx).InfoContext(ctx, "compression starts over", "cause", cause.Error(), "restarts", r.State.Restarts)
	return nil
}

// finish compresses the rest of the source and commits the target.
func (r *compression) finish(ctx context.Context) (*compressResult, error) {
	var data, frame []byte
	for s := &r.State; !s.complete(); {
		data = slices.Grow(data[:0], s.next())[:s.next()]
		if err := r.source.read(ctx, data, s.Offset, s.ETag); err != nil {
			return nil, err // after an eviction notice it is the stop: everything reported is kept
		}
		frame = r.encoder.EncodeAll(data, frame[:0])
		if err := r.target.stage(ctx, s.frames(), frame); err != nil {
			return nil, err
		}
		s.add(data, frame)
		if err := r.ReportState(s.fraction(), fmt.Sprintf("%d of %d bytes", s.Offset, s.Size)); err != nil {
			return nil, err
		}
	}
	return r.target.commit(ctx, &r.State)
}
