package delivery

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
)

// publishersKnownFor is how old a listing may be that says how many workers publish: evictions
// soon leave few of many.
const publishersKnownFor = 5 * time.Minute

// Publishing returns how many workers take jobs and publish the depths of queues for a resource
// ([presence.Presence] has it as Depths); 0 where heartbeats cannot be listed.
func (f *Fleet) Publishing(ctx context.Context, resource string) (workers int) {
	sample, err := f.Sample(ctx, publishersKnownFor)
	if err != nil {
		return 0
	}
	for _, p := range sample.Workers {
		if p.Age <= lacksKindFor && p.State == lifecycle.Process.String() && p.Depths == resource {
			workers++
		}
	}
	return workers
}
