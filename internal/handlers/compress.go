package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/klauspost/compress/zstd"

	"github.com/spotworker/spotworker/internal/blobref"
	"github.com/spotworker/spotworker/job"
)

// Compress is the handler of the kind "compress": a blob becomes a zstd blob. The
// payload is a [CompressPayload], the result a [CompressResult].
//
// It reads the source in chunks, as [Digest] does. Each chunk becomes a zstd frame, and
// consecutive frames are one valid zstd stream. It stages a frame as a block of the
// target and then reports it, so that a stop loses the current chunk only. The last
// step commits all blocks, unless the target exists.
//
// Leftovers of a stopped worker are harmless: a block's id consists of its job, its
// number and its content, so a worker that lost the job can only stage the same block
// again. If two workers commit, the second finds the first one's target and returns the
// same result.
type Compress struct {
	container          func(name string) *container.Client
	readable, writable []string
	chunk              int64 // least size of a chunk, in bytes
	log                *slog.Logger
}

// NewCompress returns a handler that reads from and writes to the allowed containers
// only. container returns the client of one. Every staged frame is logged at debug
// level.
func NewCompress(container func(name string) *container.Client, readable, writable []string, log *slog.Logger) *Compress {
	return &Compress{container: container, readable: slices.Clone(readable), writable: slices.Clone(writable), chunk: rangeSize, log: log}
}

// Run implements [job.Handler].
func (h *Compress) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	p, err := h.payload(j)
	if err != nil {
		return nil, job.Permanent(fmt.Errorf("payload of a compress job: %w", err))
	}
	r, err := h.begin(j, p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.encoder.Close() }()
	result, err := r.target.made(ctx)
	if result != nil || err != nil {
		return result, err
	}
	if err := r.resume(ctx); err != nil {
		return nil, err
	}
	for {
		result, err := r.finish(ctx)
		if !errors.Is(err, errChanged) && !errors.Is(err, errBlocksGone) {
			return result, err
		}
		if err := r.startOver(ctx, err); err != nil {
			return nil, err
		}
	}
}

// payload decodes the payload, and checks that its containers are allowed.
func (h *Compress) payload(j *job.Job) (CompressPayload, error) {
	p, err := parseCompressPayload(j.Payload)
	switch {
	case err != nil:
		return p, err
	case !slices.Contains(h.readable, p.Container):
		return p, notAllowed(p.Container, "read", "--data-container")
	case !slices.Contains(h.writable, p.TargetContainer):
		return p, notAllowed(p.TargetContainer, "write", "--output-container")
	}
	return p, nil
}

// begin makes no request.
func (h *Compress) begin(j *job.Job, p CompressPayload) (*compression, error) {
	from, err := openSource(h.container, blobName{p.Container, p.Blob, p.Version})
	if err != nil {
		return nil, err
	}
	to, err := openTarget(h.container, p, j)
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(p.Level)),
		zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true)) // an empty blob becomes a frame too
	if err != nil {
		return nil, fmt.Errorf("prepare zstd: %w", err)
	}
	return &compression{job: j, source: from, target: to, encoder: encoder, chunk: h.chunk, log: h.log}, nil
}

// compression is one run of a compress job.
type compression struct {
	job     *job.Job
	source  *source
	target  *target
	encoder *zstd.Encoder
	chunk   int64 // the least
	log     *slog.Logger

	at *frameCursor
}

// resume continues from the saved state, or starts at the beginning of the source.
func (r *compression) resume(ctx context.Context) error {
	if err := r.job.CheckVersion(compressStateVersion); err != nil {
		return err
	}
	state, _, ok := r.job.Saved()
	if !ok {
		return r.start(ctx)
	}
	at, err := decodeFrames(state)
	if err != nil {
		return job.Permanent(fmt.Errorf("recorded state of a compress job: %w", err))
	}
	r.at = at
	err = r.target.holds(ctx, at.frames)
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
		return job.Permanent(fmt.Errorf("compress %s: %w", r.source, err))
	}
	r.at = newFrameCursor(etag, size, chunk)
	return nil
}

// startOver is start for a job whose source has changed or whose blocks are gone.
func (r *compression) startOver(ctx context.Context, cause error) error {
	restarts := r.at.restarts
	if restarts >= maxRestarts {
		return job.Permanent(fmt.Errorf("the job started over %d times, and again: %w", restarts, cause))
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	r.at.restarts = restarts + 1
	r.log.InfoContext(ctx, "compression starts over", "job_id", r.job.ID, "cause", cause.Error(), "restarts", r.at.restarts)
	return nil
}

// finish compresses the rest of the source and commits the target.
func (r *compression) finish(ctx context.Context) ([]byte, error) {
	var data, frame []byte
	for !r.at.atEnd() {
		data = slices.Grow(data[:0], r.at.next())[:r.at.next()]
		if len(data) > 0 {
			if err := r.source.read(ctx, data, r.at.offset, r.at.etag); err != nil {
				return nil, err
			}
		}
		frame = r.encoder.EncodeAll(data, frame[:0])
		if err := r.target.stage(ctx, len(r.at.frames), frame); err != nil {
			return nil, err
		}
		r.at.add(data, frame)
		progress, err := r.at.progress()
		if err != nil {
			return nil, err
		}
		r.job.Report(progress)
		r.log.DebugContext(ctx, "frame staged", "job_id", r.job.ID, "frame", len(r.at.frames)-1, "bytes", len(data), "compressed", len(frame))
	}
	return r.target.commit(ctx, r.at)
}

// Levels of compression, as zstd counts them.
const (
	defaultLevel = 3
	maxLevel     = 19
)

// targetSuffix is the suffix of the target's default name.
const targetSuffix = ".zst"

// CompressPayload names the blob to compress, and where to. Unknown fields are
// ignored.
type CompressPayload struct {
	// Container, Blob and Version name the source as in a [DigestPayload].
	Container string `json:"container"`
	Blob      string `json:"blob"`
	Version   string `json:"version,omitempty"`

	// TargetContainer must be one that the worker was allowed to write.
	TargetContainer string `json:"target_container"`

	// TargetBlob is the name of the target, which must not exist. Default: the source's
	// name and ".zst".
	TargetBlob string `json:"target_blob,omitempty"`

	// Level is 1 to 19, as zstd counts; the encoder has four speeds and takes
	// the nearest. Default 3.
	Level int `json:"level,omitempty"`
}

// parseCompressPayload returns an error that names the field that is wrong.
func parseCompressPayload(raw []byte) (CompressPayload, error) {
	var p CompressPayload
	if err := decodePayload(raw, &p, `{"container":"data","blob":"2026/a.tar","target_container":"packed"}`); err != nil {
		return CompressPayload{}, err
	}
	if p.TargetBlob == "" && p.Blob != "" {
		p.TargetBlob = p.Blob + targetSuffix
	}
	if p.Level == 0 {
		p.Level = defaultLevel
	}
	fields := append(sourceFields(p.Container, p.Blob, p.Version),
		field{"target_container", blobref.CheckContainer(p.TargetContainer)}, field{"target_blob", blobref.CheckBlob(p.TargetBlob)}, field{"level", checkLevel(p.Level)})
	if err := firstWrong(fields); err != nil {
		return CompressPayload{}, err
	}
	if p.Container == p.TargetContainer && p.Blob == p.TargetBlob {
		return CompressPayload{}, errors.New("source and target are the same blob")
	}
	return p, nil
}

func checkLevel(level int) error {
	if level < 1 || level > maxLevel {
		return fmt.Errorf("is %d; a level is 1 to %d", level, maxLevel)
	}
	return nil
}
