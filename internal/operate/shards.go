package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// shardsEmptyFor is how long queues must have been empty until no job is taken from
	// them any more: producers read the number of queues each minute.
	shardsEmptyFor = 75 * time.Second

	// shardsPoll is how often they are looked at.
	shardsPoll = 5 * time.Second
)

// ErrShardsInUse means that queues that are to be left still have messages.
var ErrShardsInUse = errors.New("they still have messages")

// Resize spreads the jobs of a deployment over so many queues. It creates missing
// queues, and records the number in the metadata of the first, which workers and
// producers read each minute.
//
// To fewer queues it takes two steps, so that no job is left behind: first jobs are put
// over fewer queues and still taken from all, and when the others have been empty for 75
// s, jobs are taken from fewer too. The error is [ErrShardsInUse] if that takes longer
// than patience, where that is not 0, or ctx ends; then the second step is left, and
// repeating Resize takes it. It calls waiting with the number of messages left at each
// look.
func Resize(ctx context.Context, jobs *queue.Shards, shards int, patience time.Duration, waiting func(messages int)) error {
	if err := (queue.ShardCounts{Put: shards, Taken: shards}).Validate(); err != nil {
		return err
	}
	now, err := jobs.Read(ctx)
	if err != nil && !errors.Is(err, queue.ErrShards) {
		return err
	}
	isKnown := err == nil
	for i := 1; i < shards; i++ {
		if err := jobs.At(i).Create(ctx); err != nil {
			return err
		}
	}
	if now.Put != shards || !isKnown {
		if err := jobs.Write(ctx, queue.ShardCounts{Put: shards, Taken: max(now.Taken, shards)}); err != nil {
			return err
		}
	}
	if now.Taken <= shards {
		return nil
	}
	if err := awaitEmpty(ctx, jobs, shards, patience, waiting); err != nil {
		return err
	}
	return jobs.Write(ctx, queue.ShardCounts{Put: shards, Taken: shards})
}

// awaitEmpty waits until the queues from that one on have been empty for shardsEmptyFor.
func awaitEmpty(ctx context.Context, jobs *queue.Shards, from int, patience time.Duration, waiting func(messages int)) error {
	began := time.Now()
	for since := began; ; {
		left := 0
		for _, q := range jobs.All()[from:] {
			n, err := q.Depth(ctx)
			if err != nil && !queueerror.HasCode(err, queueerror.QueueNotFound) {
				return err
			}
			left += n
		}
		if left > 0 {
			since = time.Now()
		} else if time.Since(since) >= shardsEmptyFor {
			return nil
		}
		waiting(left)
		isOver := patience > 0 && time.Since(began)+shardsPoll > patience
		if isOver || retry.Sleep(ctx, shardsPoll) != nil {
			return fmt.Errorf("jobs are put over %d queues, and still taken from %d: %w", from, len(jobs.All()), ErrShardsInUse)
		}
	}
}
