package producer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/listing"
)

const (
	digestKind = "digest"

	// DigestPrefix is the prefix of the ids of the jobs that Digests yields.
	DigestPrefix = "digest-"

	// listTimeout is the timeout of one page of a listing, including the SDK's
	// retries.
	listTimeout = time.Minute
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
		for page, err := range listing.Pages(ctx, listTimeout, client, container.ListBlobsFlatOptions{Prefix: &prefix}) {
			if bloberror.HasCode(err, bloberror.ContainerNotFound) {
				err = fmt.Errorf("container %s does not exist", name)
			} else if err != nil {
				err = fmt.Errorf("list the blobs of container %s: %w", name, err)
			}
			if err != nil {
				yield(Spec{}, err)
				return
			}
			for _, item := range page.Blobs {
				if isDirectory(item) {
					continue
				}
				if !yield(digestJob(name, item, defaults)) {
					return
				}
			}
		}
	}
}

// isDirectory reports whether an entry is a directory, as listed by an account with a
// hierarchical namespace.
func isDirectory(item *container.BlobItem) bool {
	p := item.Properties
	return p != nil && p.ResourceType != nil && *p.ResourceType == "directory"
}

func digestJob(name string, item *container.BlobItem, spec Spec) (Spec, error) {
	spec.Where, spec.Kind = fmt.Sprintf("blob %q", *item.Name), digestKind
	raw, err := json.Marshal(handlers.DigestPayload{Container: name, Blob: *item.Name})
	if err == nil {
		spec.Payload, err = queue.JSONPayload(raw)
	}
	if err != nil {
		return Spec{}, &JobError{Where: spec.Where, Err: err}
	}
	spec.ID = DigestID(name, *item.Name, string(*item.Properties.ETag))
	return spec, nil
}
