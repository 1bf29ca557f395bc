package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/deployment"
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

// ErrFewerAccounts means that a deployment that is not empty would have fewer accounts.
var ErrFewerAccounts = errors.New("accounts can only be removed while the deployment is empty, " +
	"and it has jobs, messages or records")

// SpreadOver spreads the jobs of a deployment over so many of its accounts, and creates
// the queues and containers that are missing. Jobs with chosen ids stay on the accounts
// that they were spread over, unless there is no job, message or record, or chosenIDs is
// set. Over fewer accounts they are spread only if there is none of these: otherwise the
// error is [ErrFewerAccounts].
func SpreadOver(ctx context.Context, d *deployment.Deployment, accounts int, chosenIDs bool) (queue.Spread, error) {
	if _, err := d.Jobs.Read(ctx); err != nil && !queueerror.HasCode(err, queueerror.QueueNotFound) {
		return queue.Spread{}, err
	}
	now, err := d.Spread.Known()
	if err != nil && now.Accounts() > 1 {
		return now, err
	}
	if accounts < now.Accounts() {
		if err := checkEmpty(ctx, d.Accounts, now.Accounts()); err != nil {
			return now, err
		}
		chosenIDs = true // none was put
	}
	next := queue.Spread{IDs: max(now.IDs, 1)}
	for _, s := range d.Accounts[:accounts] {
		if s.Account.Name() == "" {
			return now, errors.New("the first storage account was given without its name; jobs are spread over accounts by their names")
		}
		next.Names = append(next.Names, s.Account.Name())
	}
	if !chosenIDs && next.IDs < accounts {
		if chosenIDs, err = isEmpty(ctx, d.Accounts[:accounts]); err != nil {
			return now, err
		}
	}
	if chosenIDs {
		next.IDs = accounts
	}
	for _, s := range d.Accounts[:accounts] {
		if err := s.Create(ctx); err != nil {
			return now, fmt.Errorf("storage account %s, of which nothing was recorded: %w", s.Account.Name(), err)
		}
	}
	return next, d.Spread.Write(ctx, next)
}

// checkEmpty returns why a deployment over so many accounts cannot have fewer of them, or nil.
func checkEmpty(ctx context.Context, given []*deployment.Stores, accounts int) error {
	if len(given) < accounts {
		return fmt.Errorf("jobs are spread over %d accounts, and %d were given: give all, to see whether they are empty",
			accounts, len(given))
	}
	empty, err := isEmpty(ctx, given[:accounts])
	if err == nil && !empty {
		err = fmt.Errorf("jobs are spread over %d accounts: %w", accounts, ErrFewerAccounts)
	}
	return err
}

// isEmpty reports whether the accounts have no message of a job and no record.
func isEmpty(ctx context.Context, all []*deployment.Stores) (bool, error) {
	for _, s := range all {
		if _, err := s.Jobs.Read(ctx); err != nil && !queueerror.HasCode(err, queueerror.QueueNotFound) {
			return false, err
		}
		for _, q := range append([]*queue.Queue{s.OnDemand, s.Poison}, s.Jobs.All()...) {
			n, err := q.Depth(ctx)
			if err != nil && !queueerror.HasCode(err, queueerror.QueueNotFound) {
				return false, err
			}
			if n > 0 {
				return false, nil
			}
		}
		for _, err := range s.Records.List(ctx, "") {
			if bloberror.HasCode(err, bloberror.ContainerNotFound) {
				break
			}
			return false, err
		}
	}
	return true, nil
}
