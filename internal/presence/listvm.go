package presence

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// Listed is a presence as a listing shows it: everything but the ids of the jobs.
type Listed struct {
	Presence

	// Age is how long ago it was written, by the service's clock.
	Age time.Duration
}

// ListVM returns the presences of the workers of a VM, whose name is compared
// without case. One of an old version, which does not say its VM's name, is not
// among them.
//
// Blobs are named after the VM, as it was spelled when they were written, so one
// call with the name as a prefix finds them. Where it finds none, all presences
// are looked through, for one that was spelled otherwise.
func (s *Store) ListVM(ctx context.Context, vm string) ([]Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := s.listVM(ctx, vm, vm+"-")
	if err == nil && len(found) == 0 {
		found, err = s.listVM(ctx, vm, "")
	}
	if err != nil {
		return nil, fmt.Errorf("list presences of %s: %w", vm, err)
	}
	return found, nil
}

func (s *Store) listVM(ctx context.Context, vm, prefix string) ([]Listed, error) {
	options := container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}}
	if prefix != "" {
		options.Prefix = &prefix
	}
	var found []Listed
	for pages := s.container.NewListBlobsFlatPager(&options); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, blob := range page.Segment.BlobItems {
			p := parse(*blob.Name, blob.Metadata)
			if strings.EqualFold(p.VM, vm) && page.Date != nil && blob.Properties.LastModified != nil {
				found = append(found, Listed{Presence: p, Age: page.Date.Sub(*blob.Properties.LastModified)})
			}
		}
	}
	return found, nil
}
