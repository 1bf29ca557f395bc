package producer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/queue"
)

const (
	digestKind = "digest"

	// digestPrefix is the prefix of the ids of the jobs that Digests yields.
	digestPrefix = "digest-"

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
	return digestPrefix + hex.EncodeToString(sum[:16])
}

// Digests yields a job of the kind "digest" with those terms for each blob of a
// container whose name starts with prefix (all for ""), in the order of their
// names. Any error but a [*JobError] ends the sequence.
func Digests(ctx context.Context, client *container.Client, name, prefix string, terms Terms) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		pager := client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
		for pager.More() {
			page, err := nextPage(ctx, pager.NextPage)
			if bloberror.HasCode(err, bloberror.ContainerNotFound) {
				err = fmt.Errorf("container %s does not exist", name)
			} else if err != nil {
				err = fmt.Errorf("list the blobs of container %s: %w", name, err)
			}
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, item := range page {
				if isDirectory(item) {
					continue
				}
				if !yield(digestJob(name, item, terms)) {
					return
				}
			}
		}
	}
}

func nextPage(ctx context.Context, next func(context.Context) (container.ListBlobsFlatResponse, error)) ([]*container.BlobItem, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := next(ctx)
	if err != nil {
		return nil, err
	}
	return page.Segment.BlobItems, nil
}

// isDirectory reports whether an entry is a directory, as listed by an account with a
// hierarchical namespace.
func isDirectory(item *container.BlobItem) bool {
	p := item.Properties
	return p != nil && p.ResourceType != nil && *p.ResourceType == "directory"
}

func digestJob(name string, item *container.BlobItem, terms Terms) (Job, error) {
	where := fmt.Sprintf("blob %q", *item.Name)
	if item.Properties == nil || item.Properties.ETag == nil {
		return Job{}, &JobError{Where: where, Err: errors.New("the listing has no ETag for it")}
	}
	raw, err := json.Marshal(handlers.DigestPayload{Container: name, Blob: *item.Name})
	if err != nil {
		return Job{}, &JobError{Where: where, Err: err}
	}
	payload, err := queue.JSONPayload(raw)
	if err != nil {
		return Job{}, &JobError{Where: where, Err: err}
	}
	id := DigestID(name, *item.Name, string(*item.Properties.ETag))
	return NewJob(where, Spec{ID: id, Kind: digestKind, Payload: payload, Terms: terms})
}

// KnownDigests returns the status of all jobs of [Digests] that have a record. A job
// that is open or running needs no second message; one that is done, poison or
// cancelled would not run. It costs one call per 5,000 records of the deployment.
// If the container of records does not exist, the result is empty.
func KnownDigests(ctx context.Context, records *checkpoint.Store) (map[string]checkpoint.Status, error) {
	known := map[string]checkpoint.Status{}
	for record, err := range records.List(ctx, digestPrefix) {
		if bloberror.HasCode(err, bloberror.ContainerNotFound) {
			return known, nil
		}
		if err != nil {
			return nil, err
		}
		known[record.ID] = record.Status
	}
	return known, nil
}
