package producer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

const (
	digestKind = "digest"

	// DigestPrefix is the prefix of the ids of the jobs that Digests yields.
	DigestPrefix = "digest-"
)

// DigestID returns the id of the job that hashes a blob: "digest-" and the first
// 32 hex digits of the SHA-256 of container, name and ETag with a zero byte
// between them. An unchanged blob has the same id in every listing, so that it is
// hashed once; a blob that was written again has another id.
func DigestID(containerName, blob, etag string) string {
	etag = strings.Trim(etag, `"`) // a listing has no quotes, a header has
	sum := sha256.Sum256([]byte(containerName + "\x00" + blob + "\x00" + etag))
	return DigestPrefix + hex.EncodeToString(sum[:16])
}

// Digests yields a job of the kind "digest" like defaults for each blob of a
// container whose name starts with prefix (all for ""), in the order of their
// names. Any error but a [*JobError] ends the sequence.
func Digests(ctx context.Context, client *container.Client, name, prefix string, defaults Spec) iter.Seq2[Spec, error] {
	return func(yield func(Spec, error) bool) {
		for b, err := range blobs.In(client).List(ctx, prefix, false) {
			if bloberror.HasCode(err, bloberror.ContainerNotFound) {
				err = fmt.Errorf("container %s does not exist", name)
			} else if err != nil {
				err = fmt.Errorf("list the blobs of container %s: %w", name, err)
			}
			if err != nil {
				yield(Spec{}, err)
				return
			}
			if b.IsFolder {
				continue
			}
			if !yield(digestJob(name, b, defaults)) {
				return
			}
		}
	}
}

func digestJob(name string, b blobs.Blob, spec Spec) (Spec, error) {
	spec.Where, spec.Kind = fmt.Sprintf("blob %q", b.Name), digestKind
	raw, err := json.Marshal(handlers.DigestPayload{Container: name, Blob: b.Name})
	if err == nil {
		spec.Payload, err = queue.JSONPayload(raw)
	}
	if err != nil {
		return Spec{}, &JobError{Where: spec.Where, Err: err}
	}
	spec.ID = DigestID(name, b.Name, string(b.ETag))
	return spec, nil
}
