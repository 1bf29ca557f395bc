package presence

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// List returns the presences of all workers, without the ids of their jobs. It
// costs one call for each 5,000 of them.
func (s *Store) List(ctx context.Context) ([]Listed, error) {
	pager := s.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{Metadata: true}})
	var all []Listed
	for pager.More() {
		page, err := nextPage(ctx, pager.NextPage)
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			listed := Listed{Presence: parse(*item.Name, item.Metadata)}
			if page.Date != nil && item.Properties != nil && item.Properties.LastModified != nil {
				listed.Age = page.Date.Sub(*item.Properties.LastModified)
			}
			all = append(all, listed)
		}
	}
	return all, nil
}

func nextPage(ctx context.Context, next func(context.Context) (container.ListBlobsFlatResponse, error)) (container.ListBlobsFlatResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return next(ctx)
}
