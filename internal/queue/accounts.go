package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// MaxAccounts is the most storage accounts of one deployment.
const MaxAccounts = 16

// Keys of the metadata of the first queue in the first account: the accounts that jobs
// are spread over, and how many of them jobs with chosen ids use. Without them that is
// the first account alone.
const (
	accountsKey   = "accounts"
	accountIDsKey = "accountids"
)

// ErrAccounts means that it is not known in which account a job belongs, or that this
// program was not given that account.
var ErrAccounts = errors.New("the account of the job is not known")

// Spread says over which accounts the jobs of a deployment are spread.
type Spread struct {
	// Names are the names of the accounts in the order in which they were added, the first
	// account of the deployment first; empty where that is the only one. A job with a new,
	// random id may be in any of them.
	Names []string

	// IDs is over how many of them, from the first on, jobs are spread whose id was
	// chosen and may be put again: as long as it stays the same, all puts of an id meet in
	// one account.
	IDs int
}

// Accounts returns how many accounts there are.
func (s Spread) Accounts() int { return max(len(s.Names), 1) }

// parseSpread reads the accounts of a deployment from metadata.
func parseSpread(metadata map[string]*string) (Spread, error) {
	s := Spread{}
	for name, value := range metadata {
		switch {
		case value == nil:
		case strings.EqualFold(name, accountsKey):
			s.Names = strings.Split(*value, ",")
		case strings.EqualFold(name, accountIDsKey):
			n, err := strconv.Atoi(*value)
			if err != nil {
				return s, fmt.Errorf("%s is %q, which is no number", accountIDsKey, *value)
			}
			s.IDs = n
		}
	}
	s.IDs = cmp.Or(s.IDs, s.Accounts())
	if s.Accounts() > MaxAccounts || s.IDs < 1 || s.IDs > s.Accounts() || slices.Contains(s.Names, "") {
		return s, fmt.Errorf("%d accounts, %d of them for chosen ids, make no sense", s.Accounts(), s.IDs)
	}
	return s, nil
}

// AccountOf returns the account of a job, by number, when there are so many.
func AccountOf(id string, accounts int) int {
	if accounts <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(id))
	// Not the bytes that choose the record's place and the queue.
	return int(binary.BigEndian.Uint64(sum[16:24]) % uint64(accounts))
}

// Accounts are the queues of jobs of a deployment in all accounts given to this program.
// The metadata of the first queue of the first account decides which of them jobs are
// spread over. It can choose among the accounts, and not add one: a program signs in to
// no other account. Its methods may be called from several goroutines.
type Accounts struct {
	names  []string
	shards []*Shards
}

// NewAccounts returns the queues of jobs in the accounts of those names.
func NewAccounts(names []string, shards []*Shards) *Accounts {
	return &Accounts{names: names, shards: shards}
}

// Name returns the name of an account by its number; empty if the program was not given it.
func (a *Accounts) Name(i int) string {
	if i >= len(a.names) {
		return ""
	}
	return a.names[i]
}

// Len returns how many accounts this program was given.
func (a *Accounts) Len() int { return len(a.shards) }

// Known returns over which accounts jobs are spread, as it was read last. The error is
// [ErrAccounts] if it was never read, or the accounts of this program are not the first
// of the deployment in their order.
func (a *Accounts) Known() (Spread, error) {
	s := a.shards[0].spread.Load()
	if s == nil {
		err := errors.New("it was not read yet")
		if last := a.shards[0].readErr.Load(); last != nil {
			err = *last
		}
		return Spread{}, fmt.Errorf("%w: over which accounts jobs are spread is in the metadata of queue %s: %w", ErrAccounts,
			a.shards[0].Main().Name(), err)
	}
	for i, name := range s.Names[:min(len(s.Names), len(a.names))] {
		if len(s.Names) > 1 && name != a.names[i] {
			return *s, fmt.Errorf("%w: the accounts of the deployment are %s, in this order, and this program was given %s: give it the same",
				ErrAccounts, strings.Join(s.Names, ", "), strings.Join(a.names, ", "))
		}
	}
	return *s, nil
}

// Place returns the queue for new messages of a job, in the account where it belongs. A
// job with a new, random id may be in any account that this program knows. A chosen id
// has one place for all its puts. The error is [ErrAccounts].
//
// While the first account does not answer, a program that starts cannot learn where
// chosen ids belong, and refuses them. New ids go to the other accounts.
func (a *Accounts) Place(id string, chosen bool) (*Queue, error) {
	if len(a.shards) == 1 && a.shards[0].spread.Load() == nil {
		return a.shards[0].For(id), nil // it may not be allowed to read, as with one account
	}
	s, err := a.Known()
	isSilent := a.isSilent()
	switch {
	case isSilent && chosen:
		return nil, fmt.Errorf("%w; while storage account %s does not answer, only jobs without ids of their own are put, "+
			"in the other accounts: repeat this one later", err, a.names[0])
	case isSilent:
		return a.shards[1+AccountOf(id, len(a.shards)-1)].For(id), nil
	case err != nil:
		return nil, err
	}
	if chosen && len(a.shards) > 1 && len(s.Names) == 0 {
		return nil, fmt.Errorf("%w: queue %s does not say over which accounts jobs with chosen ids are spread: run spotctl accounts N, with 1 "+
			"if jobs were put in the first account alone until now",
			ErrAccounts, a.shards[0].Main().Name())
	}
	accounts := min(s.Accounts(), len(a.shards))
	if chosen {
		accounts = s.IDs
	}
	at := AccountOf(id, accounts)
	if at >= len(a.shards) {
		return nil, fmt.Errorf("%w: job %s belongs in account %s, and this program was given %s alone: give it all accounts of the deployment",
			ErrAccounts, id, s.Names[at], strings.Join(a.names, ", "))
	}
	return a.shards[at].For(id), nil
}

// isSilent reports whether the accounts are unknown because the first one does not answer:
// not because it refuses the read or has nothing that can be read.
func (a *Accounts) isSilent() bool {
	last := a.shards[0].readErr.Load()
	if a.shards[0].spread.Load() != nil || last == nil {
		return false
	}
	err := *last
	if errors.Is(err, ErrShards) || errors.Is(err, ErrAccounts) || errors.Is(err, context.Canceled) {
		return false
	}
	response, answered := errors.AsType[*azcore.ResponseError](err)
	return !answered || response.StatusCode == http.StatusTooManyRequests ||
		response.StatusCode >= http.StatusInternalServerError
}

// ReadToPut reads over which accounts and queues jobs are put, at most once a minute: one
// call for each account.
func (a *Accounts) ReadToPut(ctx context.Context) {
	var reads sync.WaitGroup
	for _, s := range a.shards[1:] {
		reads.Go(func() { s.ReadToPut(ctx) })
	}
	a.shards[0].ReadToPut(ctx)
	reads.Wait()
}

// Write records over which accounts jobs are spread. It costs two calls.
func (a *Accounts) Write(ctx context.Context, s Spread) error {
	values := map[string]string{accountsKey: strings.Join(s.Names, ","), accountIDsKey: ""}
	if s.IDs < s.Accounts() {
		values[accountIDsKey] = strconv.Itoa(s.IDs)
	}
	if err := a.shards[0].Main().setMetadata(ctx, values); err != nil {
		return fmt.Errorf("record the accounts on queue %s: %w", a.shards[0].Main().Name(), err)
	}
	a.shards[0].spread.Store(&s)
	return nil
}
