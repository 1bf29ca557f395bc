package presence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/storage/listing"
)

// Listed is a heartbeat as it was read. In a listing it is without the ids of the jobs.
type Listed struct {
	Presence

	// Age is how long ago it was written, by the service's clock.
	Age time.Duration
}

// List returns the heartbeats of all workers. It costs one call for each 5,000 of
// them.
func (s *Store) List(ctx context.Context) ([]Listed, error) {
	all, err := s.list(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return all, nil
}

// ListVM returns the heartbeats of the workers of a VM, whose name is compared
// without case. A heartbeat of an old version, which does not state its VM's name,
// is not among them.
//
// Blobs are named after the VM, as it was spelled when they were written, so one call
// with the name as a prefix finds them. If it finds none, ListVM searches all heartbeats
// for another spelling.
func (s *Store) ListVM(ctx context.Context, vm string) ([]Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, prefix := range []string{vm + "-", ""} {
		found, err := s.list(ctx, prefix)
		if err != nil {
			return nil, fmt.Errorf("list workers of %s: %w", vm, err)
		}
		found = slices.DeleteFunc(found, func(p Listed) bool { return !strings.EqualFold(p.VM, vm) })
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// isHeartbeat reports whether a blob may be a heartbeat: each has a version, and no folder
// in its name. Blobs of others would count as workers of an old version.
func isHeartbeat(item *container.BlobItem) bool {
	if *item.Name == "" || strings.Contains(*item.Name, "/") {
		return false
	}
	for key, value := range item.Metadata {
		if strings.EqualFold(key, "v") && value != nil {
			return true
		}
	}
	return false
}

// list returns the heartbeats whose blob name starts with prefix.
func (s *Store) list(ctx context.Context, prefix string) ([]Listed, error) {
	var all []Listed
	for page, err := range listing.Pages(ctx, callTimeout, s.container, container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true}, Prefix: &prefix,
	}) {
		if err != nil {
			return nil, err
		}
		for _, item := range page.Blobs {
			if isHeartbeat(item) {
				all = append(all, Listed{Presence: parse(*item.Name, item.Metadata), Age: page.Date.Sub(*item.Properties.LastModified)})
			}
		}
	}
	return all, nil
}
