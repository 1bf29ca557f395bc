package joblog

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"golang.org/x/sync/semaphore"
)

// parallelWrites is how many logs a worker writes at once.
const parallelWrites = 8

// Keeper keeps the logs of all jobs of a worker. A nil Keeper keeps none.
type Keeper struct {
	store  *Store
	size   int
	writes *semaphore.Weighted

	mu         sync.Mutex
	unfinished int           // deliveries that have something more important to write
	none       chan struct{} // closed when there is none; nil without a waiter
}

// NewKeeper returns what keeps so many bytes of each log; nil without a store.
func NewKeeper(store *Store, size int) *Keeper {
	if store == nil {
		return nil
	}
	return &Keeper{store: store, size: size, writes: semaphore.NewWeighted(parallelWrites)}
}

// Begin records that a delivery began. The caller calls Finish once it has written
// everything that matters more than a log.
func (k *Keeper) Begin() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unfinished++
}

// Finish records that a delivery has written everything that matters more than its log.
func (k *Keeper) Finish() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unfinished--; k.unfinished == 0 && k.none != nil {
		close(k.none)
		k.none = nil
	}
}

// WaitForOthers waits until all deliveries have finished, or ctx ends.
func (k *Keeper) WaitForOthers(ctx context.Context) {
	k.mu.Lock()
	if k.unfinished == 0 {
		k.mu.Unlock()
		return
	}
	if k.none == nil {
		k.none = make(chan struct{})
	}
	none := k.none
	k.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// Open returns the log of a delivery that begins now, of a job whose record was created
// at that time. It takes the number of the claim and the record's part of the log.
func (k *Keeper) Open(id string, created time.Time, generation int, worker, recorded string) *Output {
	if k == nil {
		return nil
	}
	return &Output{
		Log: New(generation, worker, k.size, recorded), keeper: k, of: delivery{id, created, generation}, writing: make(chan struct{}, 1),
	}
}

// Output is the log of one delivery and how it is stored. A nil Output keeps nothing.
type Output struct {
	*Log
	keeper  *Keeper
	of      delivery
	writing chan struct{} // holds one while a write is under way, and guards what follows
	etag    azcore.ETag   // of the last write that was answered
	bounded bool          // the blobs of much earlier deliveries are removed
}

// Add adds a line: see [Log.Add].
func (o *Output) Add(source string, text []byte) {
	if o != nil {
		o.Log.Add(source, text)
	}
}

// LeaveRecord says that the record is no longer written: see [Log.LeaveRecord].
func (o *Output) LeaveRecord() {
	if o != nil {
		o.Log.LeaveRecord()
	}
}

// Pending reports whether [Output.WriteLast] has something to write: see [Log.Pending].
func (o *Output) Pending() bool { return o != nil && o.Log.Pending() }

// WriteSoon begins to write the log if that is necessary and no write is under way. It
// does not wait; report gets the result of a write.
func (o *Output) WriteSoon(ctx context.Context, timeout time.Duration, report func(error)) {
	if !o.Pending() {
		return
	}
	select {
	case o.writing <- struct{}{}:
	default:
		return // the next checkpoint comes
	}
	go func() {
		defer func() { <-o.writing }()
		report(o.write(ctx, timeout))
	}()
}

// WriteLast writes the log when the write under way has ended.
func (o *Output) WriteLast(ctx context.Context, timeout time.Duration) error {
	select {
	case o.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.writing }()
	if !o.Pending() {
		return nil
	}
	return o.write(ctx, timeout)
}

func (o *Output) write(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := o.keeper.writes.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer o.keeper.writes.Release(1)
	text, added := o.encode()
	var err error
	if o.etag, err = o.keeper.store.put(ctx, o.of, o.etag, text); err != nil {
		return err
	}
	o.wrote(added)
	if o.bounded {
		return nil
	}
	err = o.keeper.store.bound(ctx, o.of)
	o.bounded = err == nil
	return err
}
