package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/queue"
)

// ErrFewerAccounts means that a deployment would have fewer accounts than before.
var ErrFewerAccounts = errors.New("accounts can be added and not removed, since they have records of jobs")

// SpreadOver spreads the jobs of a deployment over so many of its accounts, and creates
// the queues and containers that are missing. Jobs with chosen ids stay on the accounts
// that they were spread over, unless there is no job, message or record, or chosenIDs is
// set.
func SpreadOver(ctx context.Context, d *deployment.Stores, accounts int, chosenIDs bool) (queue.Spread, error) {
	if _, err := d.Jobs.Read(ctx); err != nil && !queueerror.HasCode(err, queueerror.QueueNotFound) {
		return queue.Spread{}, err
	}
	now, err := d.Accounts.Known()
	if err != nil && now.Accounts() > 1 {
		return now, err
	}
	if accounts < now.Accounts() {
		return now, fmt.Errorf("jobs are spread over %d accounts: %w", now.Accounts(), ErrFewerAccounts)
	}
	next := queue.Spread{IDs: max(now.IDs, 1)}
	for _, s := range d.All()[:accounts] {
		if s.Account.Name() == "" {
			return now, errors.New("the first storage account was given without its name; jobs are spread over accounts by their names")
		}
		next.Names = append(next.Names, s.Account.Name())
	}
	if !chosenIDs && next.IDs < accounts {
		if chosenIDs, err = isEmpty(ctx, d.All()[:accounts]); err != nil {
			return now, err
		}
	}
	if chosenIDs {
		next.IDs = accounts
	}
	if accounts == 1 && now.Accounts() == 1 {
		return now, nil
	}
	for _, s := range d.All()[:accounts] {
		if err := s.Create(ctx); err != nil {
			return now, err
		}
	}
	return next, d.Accounts.Write(ctx, next)
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
