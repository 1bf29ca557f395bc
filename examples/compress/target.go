package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/job"
)

// zstdType is the media type of zstd (RFC 8878, section 7.1).
const zstdType = "application/zstd"

// errBlocksGone is the error of missing staged blocks: the service drops them a week
// after the last one (Put Block, in its REST documentation).
var errBlocksGone = errors.New("staged blocks are gone")

// target is the blob that a job makes.
type target struct {
	payload payload
	name    string // for errors
	client  *blockblob.Client

	// key identifies the target's owner. It is the same on every attempt, and different
	// for every job and payload.
	key string
}

func newTarget(c *container.Client, p payload, j *job.Job) (*target, error) {
	work, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return &target{
		payload: p, name: fmt.Sprintf("blob %q in container %s", p.TargetBlob, p.TargetContainer),
		client: c.NewBlockBlobClient(p.TargetBlob), key: j.Key("compress " + string(work)),
	}, nil
}

// made returns the result if this job has already committed the target, and nil if there
// is no target. Another job's target is a permanent error.
func (t *target) made(ctx context.Context) (*compressResult, error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := t.client.GetProperties(callCtx, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return nil, nil //nolint:nilnil // there is no target
	case err != nil:
		return nil, explain(ctx, "read "+t.name, err)
	case reply.ContentLength == nil:
		return nil, fmt.Errorf("read %s: the reply has no length", t.name)
	}
	made := labelOf(reply.Metadata)
	if made.key != t.key {
		return nil, job.Permanent(fmt.Errorf(
			"target %s exists already, and this job did not make it: remove it, or name another with target_blob", t.name))
	}
	return made.result(t.payload, *reply.ContentLength), nil
}

// holds returns errBlocksGone unless all frames of the state are staged.
func (t *target) holds(ctx context.Context, s *state) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := t.client.GetBlockList(callCtx, blockblob.BlockListTypeUncommitted, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return errBlocksGone
	case err != nil:
		return explain(ctx, "read "+t.name, err)
	}
	staged := make(map[string]bool, len(reply.UncommittedBlocks))
	for _, b := range reply.UncommittedBlocks {
		if b.Name != nil {
			staged[*b.Name] = true
		}
	}
	for _, id := range t.ids(s) {
		if !staged[id] {
			return errBlocksGone
		}
	}
	return nil
}

// stage sends frame n. Sending it again changes nothing.
func (t *target) stage(ctx context.Context, n int, frame []byte) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := t.client.StageBlock(callCtx, t.id(n, hashOf(frame)), streaming.NopCloser(bytes.NewReader(frame)),
		&blockblob.StageBlockOptions{TransactionalValidation: blob.TransferValidationTypeComputeCRC64()})
	if err != nil {
		return explain(ctx, "write "+t.name, err)
	}
	return nil
}

// commit commits the staged frames as the target, unless it exists. If it exists, this
// job made it if the reply to its commit was lost or another worker committed it.
func (t *target) commit(ctx context.Context, s *state) (*compressResult, error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	made := label{key: t.key, etag: s.ETag, bytes: s.Size, sourceSHA256: s.SourceHash.hex(), sha256: s.TargetHash.hex()}
	unlessExists := &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}
	_, err := t.client.CommitBlockList(callCtx, t.ids(s), &blockblob.CommitBlockListOptions{
		Metadata: made.metadata(), HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new(zstdType)},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: unlessExists},
	})
	switch {
	case err == nil:
		return made.result(t.payload, s.Written), nil
	case bloberror.HasCode(err, bloberror.InvalidBlockList):
		return nil, errBlocksGone
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet):
		if r, errMade := t.made(ctx); r != nil || errMade != nil {
			return r, errMade
		}
	}
	return nil, explain(ctx, "write "+t.name, err)
}

// ids returns the ids of all frames' blocks, in order.
func (t *target) ids(s *state) []string {
	ids := make([]string, s.frames())
	for n := range ids {
		ids[n] = t.id(n, s.frame(n))
	}
	return ids
}

// id returns a block id that consists of the job, the block's number and its content, so
// that any worker that stages it again stages the same: another version of the library
// may compress the same bytes differently. All ids have the same length, as the service
// requires.
func (t *target) id(n int, f frameHash) string {
	raw := append(make([]byte, 0, 64), t.key...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(n))
	return base64.StdEncoding.EncodeToString(append(raw, f[:]...))
}

// compressResult is the result of a job.
type compressResult struct {
	Algorithm string `json:"algorithm"` // "zstd"

	// Size, hash and version of the source.
	Container string `json:"container"`
	Blob      string `json:"blob"`
	ETag      string `json:"etag"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`

	TargetContainer string `json:"target_container"`
	TargetBlob      string `json:"target_blob"`
	TargetBytes     int64  `json:"target_bytes"`
	TargetSHA256    string `json:"target_sha256"`

	// Ratio is the source's size divided by the target's, to three places.
	Ratio float64 `json:"ratio"`
}

// label is the target's metadata about its compression: enough to return the result again
// if the worker that made it was stopped before it could.
type label struct {
	key, etag            string
	bytes                int64
	sourceSHA256, sha256 string
}

// Keys of a target's metadata.
const (
	labelKey          = "spotworkerjob"
	labelETag         = "sourceetag"
	labelBytes        = "sourcebytes"
	labelSourceSHA256 = "sourcesha256"
	labelSHA256       = "sha256"
)

func (l label) metadata() map[string]*string {
	return map[string]*string{
		labelKey: new(l.key), labelETag: new(l.etag), labelBytes: new(strconv.FormatInt(l.bytes, 10)),
		labelSourceSHA256: new(l.sourceSHA256), labelSHA256: new(l.sha256),
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
		return label{} // no job of this kind made it
	}
	return label{
		key: values[labelKey], etag: values[labelETag], bytes: size,
		sourceSHA256: values[labelSourceSHA256], sha256: values[labelSHA256],
	}
}

func (l label) result(p payload, written int64) *compressResult {
	return &compressResult{
		Algorithm: "zstd", Container: p.Container, Blob: p.Blob, ETag: l.etag, Bytes: l.bytes, SHA256: l.sourceSHA256,
		TargetContainer: p.TargetContainer, TargetBlob: p.TargetBlob, TargetBytes: written, TargetSHA256: l.sha256,
		Ratio: math.Round(1000*float64(l.bytes)/float64(written)) / 1000,
	}
}
