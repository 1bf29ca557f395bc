package handlers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/blobref"
	"github.com/spotworker/spotworker/job"
)

// Timeouts of one call, including the SDK's retries.
const (
	stageTimeout  = 2 * time.Minute
	commitTimeout = time.Minute
)

// zstdType is the media type of zstd (RFC 8878, section 7.1).
const zstdType = "application/zstd"

// errBlocksGone is the error of missing staged blocks: the service drops them a week
// after the last one (Put Block, in its REST documentation).
var errBlocksGone = errors.New("staged blocks are gone")

// target is the blob that a compress job makes.
type target struct {
	blobName
	payload CompressPayload
	client  *blockblob.Client

	// key identifies the target's owner. It is the same on every attempt, and different
	// for every job and payload.
	key string
}

// openTarget makes no request.
func openTarget(containers func(name string) *container.Client, p CompressPayload, j *job.Job) (*target, error) {
	work, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return &target{
		blobName: blobName{container: p.TargetContainer, blob: p.TargetBlob},
		payload:  p, client: containers(p.TargetContainer).NewBlockBlobClient(p.TargetBlob),
		key: j.Key("compress " + string(work)),
	}, nil
}

// made returns the result if this job has already committed the target, and nil if there
// is no target. A target that this job did not make is a permanent error.
func (t *target) made(ctx context.Context) ([]byte, error) {
	callCtx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	reply, err := t.client.GetProperties(callCtx, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return nil, nil
	case err != nil:
		return nil, t.explain(ctx, err)
	}
	made := labelOf(reply.Metadata)
	if made.Key != t.key {
		return nil, job.Permanent(fmt.Errorf("target %s exists already, and this job did not make it: remove it, or name another with target_blob", t))
	}
	if reply.ContentLength != nil {
		made.written = *reply.ContentLength
	}
	return made.result(t.payload)
}

// holds returns errBlocksGone unless all of the frames are staged.
func (t *target) holds(ctx context.Context, frames []frameHash) error {
	callCtx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	reply, err := t.client.GetBlockList(callCtx, blockblob.BlockListTypeUncommitted, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return errBlocksGone
	case err != nil:
		return t.explain(ctx, err)
	}
	staged := make(map[string]bool, len(reply.UncommittedBlocks))
	for _, b := range reply.UncommittedBlocks {
		if b.Name != nil {
			staged[*b.Name] = true
		}
	}
	for _, id := range t.ids(frames) {
		if !staged[id] {
			return errBlocksGone
		}
	}
	return nil
}

// stage sends frame number n. Sending it again changes nothing.
func (t *target) stage(ctx context.Context, n int, frame []byte) error {
	callCtx, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	_, err := t.client.StageBlock(callCtx, t.id(n, hashOf(frame)), streaming.NopCloser(bytes.NewReader(frame)),
		&blockblob.StageBlockOptions{TransactionalValidation: blob.TransferValidationTypeComputeCRC64()})
	if err != nil {
		return t.explain(ctx, err)
	}
	return nil
}

// commit commits the staged frames as the target, unless it exists.
func (t *target) commit(ctx context.Context, at *frameCursor) ([]byte, error) {
	callCtx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	made := label{
		Key: t.key, ETag: string(at.etag), Bytes: at.size,
		SourceSHA256: hexSum(at.in), SHA256: hexSum(at.out), written: at.written,
	}
	none := azcore.ETagAny
	_, err := t.client.CommitBlockList(callCtx, t.ids(at.frames), &blockblob.CommitBlockListOptions{
		Metadata: made.metadata(), HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new(zstdType)},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &none}},
	})
	switch {
	case err == nil:
		return made.result(t.payload)
	case bloberror.HasCode(err, bloberror.InvalidBlockList):
		return nil, errBlocksGone
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet):
		return t.afterConflict(ctx, err)
	}
	return nil, t.explain(ctx, err)
}

// afterConflict handles a target that exists: this job made it if the reply to its commit
// was lost or another worker committed it. Any other target is an error.
func (t *target) afterConflict(ctx context.Context, conflict error) ([]byte, error) {
	result, err := t.made(ctx)
	if result == nil && err == nil {
		return nil, t.explain(ctx, conflict) // it is gone again: an ordinary failure
	}
	return result, err
}

// ids returns the ids of the frames' blocks, in order.
func (t *target) ids(frames []frameHash) []string {
	ids := make([]string, len(frames))
	for n, f := range frames {
		ids[n] = t.id(n, f)
	}
	return ids
}

// id returns a block id that consists of the job, the block's number and its content, so
// that any worker that stages it again stages the same. All ids have the same length, as
// the service requires.
func (t *target) id(n int, f frameHash) string {
	raw := append(make([]byte, 0, 64), t.key...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(n))
	return base64.StdEncoding.EncodeToString(append(raw, f[:]...))
}

// explain translates an error of the client.
func (t *target) explain(ctx context.Context, err error) error {
	var response *azcore.ResponseError
	if ctx.Err() == nil && errors.As(err, &response) {
		switch code := bloberror.Code(response.ErrorCode); {
		case code == bloberror.ContainerNotFound:
			return job.Permanent(fmt.Errorf("container %s does not exist", t.container))
		case code == bloberror.InvalidBlobOrBlock && response.StatusCode == http.StatusBadRequest:
			return job.Permanent(fmt.Errorf("target %s has blocks that something else staged there and did not commit (%s): name another with target_blob, or wait a week", t, blobref.Answer(response)))
		}
	}
	return blobref.Explain(ctx, "write "+t.String(), "Storage Blob Data Contributor", err)
}

// CompressResult is the result of a compress job. Its fields come in this order.
type CompressResult struct {
	// Algorithm is "zstd".
	Algorithm string `json:"algorithm"`

	// Container, Blob and Version are the payload's; Bytes and SHA256 are the
	// source's size and hash, ETag the version that was read, quotes included.
	Container string `json:"container"`
	Blob      string `json:"blob"`
	Version   string `json:"version,omitempty"`
	ETag      string `json:"etag"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`

	// TargetContainer and TargetBlob say where the compressed blob is,
	// TargetBytes and TargetSHA256 its size and hash.
	TargetContainer string `json:"target_container"`
	TargetBlob      string `json:"target_blob"`
	TargetBytes     int64  `json:"target_bytes"`
	TargetSHA256    string `json:"target_sha256"`

	// Ratio is the source's size over the target's, to three places.
	Ratio float64 `json:"ratio"`
}

// label is the target's metadata about its compression: enough to return the result again
// if the worker that made it was stopped before it could.
type label struct {
	Key          string
	ETag         string
	Bytes        int64
	SourceSHA256 string
	SHA256       string

	written int64 // the target's size, which the service tells
}

// Keys of a target's metadata (docs/FORMATS.md).
const (
	labelKey          = "spotworkerjob"
	labelETag         = "sourceetag"
	labelBytes        = "sourcebytes"
	labelSourceSHA256 = "sourcesha256"
	labelSHA256       = "sha256"
)

func (l *label) metadata() map[string]*string {
	return map[string]*string{
		labelKey: new(l.Key), labelETag: new(l.ETag), labelBytes: new(strconv.FormatInt(l.Bytes, 10)),
		labelSourceSHA256: new(l.SourceSHA256), labelSHA256: new(l.SHA256),
	}
}

// labelOf reads a target's metadata. HTTP libraries change the case of its keys.
func labelOf(metadata map[string]*string) label {
	values := map[string]string{}
	for key, value := range metadata {
		if value != nil {
			values[strings.ToLower(key)] = *value
		}
	}
	size, err := strconv.ParseInt(values[labelBytes], 10, 64)
	if err != nil {
		return label{} // not ours: we write a number
	}
	return label{
		Key: values[labelKey], ETag: values[labelETag], Bytes: size,
		SourceSHA256: values[labelSourceSHA256], SHA256: values[labelSHA256],
	}
}

// result returns the result of a finished job.
func (l *label) result(p CompressPayload) ([]byte, error) {
	return encodeResult(CompressResult{
		Algorithm: "zstd", Container: p.Container, Blob: p.Blob, Version: p.Version,
		ETag: l.ETag, Bytes: l.Bytes, SHA256: l.SourceSHA256,
		TargetContainer: p.TargetContainer, TargetBlob: p.TargetBlob, TargetBytes: l.written, TargetSHA256: l.SHA256,
		Ratio: math.Round(1000*float64(l.Bytes)/float64(l.written)) / 1000,
	})
}
