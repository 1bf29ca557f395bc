package queue

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// MaxShards is the most queues that the jobs of one deployment are spread over: as many
// as use up the requests of one account.
const MaxShards = 16

// ShardName returns the name of a shard of a queue. The first is the queue itself, so
// that programs without shards share it with programs that have them.
func ShardName(queue string, shard int) string {
	if shard == 0 {
		return queue
	}
	return queue + "-" + strconv.Itoa(shard)
}

// ShardOf returns the shard of a job when there are so many: all messages of a job are
// on one queue for as long as the number stays the same. Nothing rests on that but that
// the queues fill evenly: the record decides between messages on several queues.
func ShardOf(id string, shards int) int {
	if shards <= 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(id))
	// Not the first bytes, which choose the record's place.
	return int(binary.BigEndian.Uint64(sum[8:16]) % uint64(shards))
}

// Jobs are the queues of jobs: one [Queue], or [Shards].
type Jobs interface {
	// For returns the queue for new messages of a job.
	For(id string) *Queue

	// All returns every queue that may have messages of jobs.
	All() []*Queue
}

// For returns q.
func (q *Queue) For(string) *Queue { return q }

// All returns q alone.
func (q *Queue) All() []*Queue { return []*Queue{q} }

// Keys of the metadata of the first queue: over how many queues jobs are put, and from
// how many they are taken, where that is more. Without them there is one.
const (
	shardsKey = "shards"
	takenKey  = "shardstaken"
)

// ErrShards means that the metadata of the first queue does not say how many there are.
var ErrShards = errors.New("the number of queues is not known")

// ShardCounts are how many queues there are for the jobs of a deployment.
type ShardCounts struct {
	// Put is over how many of them jobs are put, 1 … [MaxShards].
	Put int

	// Taken is from how many of them jobs are taken. It is more than Put while the
	// others are to become empty.
	Taken int
}

// Validate returns why there cannot be so many.
func (c ShardCounts) Validate() error {
	switch {
	case c.Put < 1 || c.Put > MaxShards: // the second number is at least as large, but this says which one is wrong
		return fmt.Errorf("jobs cannot be put over %d queues: give 1 to %d", c.Put, MaxShards)
	case c.Taken < c.Put || c.Taken > MaxShards:
		return fmt.Errorf("jobs cannot be taken from %d queues while they are put over %d: give %d to %d", c.Taken, c.Put, c.Put, MaxShards)
	}
	return nil
}

// Shards are the queues over which the jobs of a deployment are spread, because a single
// queue does not let enough messages through. Their number is in the metadata of the
// first, whose name is the logical queue's: see [Shards.Read]. Until it was read there is
// one. Its methods may be called from several goroutines.
type Shards struct {
	queues [MaxShards]*Queue
	put    atomic.Int32
	taken  atomic.Int32
	fixed  bool

	reading chan struct{}             // holds one: the reader
	readAt  atomic.Pointer[time.Time] // of [Shards.ReadToPut]
}

// NewShards returns the queues of that name. open returns the client of a queue.
func NewShards(name string, open func(name string) *azqueue.QueueClient) *Shards {
	s := &Shards{reading: make(chan struct{}, 1)}
	for i := range s.queues {
		name := ShardName(name, i)
		s.queues[i] = New(open(name), name)
	}
	s.set(ShardCounts{1, 1})
	return s
}

// Fix sets over how many queues jobs are put, for programs that may not read it. It must
// come before any other call.
func (s *Shards) Fix(shards int) {
	s.set(ShardCounts{shards, shards})
	s.fixed = true
}

// Main returns the first queue.
func (s *Shards) Main() *Queue { return s.queues[0] }

// For returns the queue for new messages of a job.
func (s *Shards) For(id string) *Queue { return s.queues[ShardOf(id, int(s.put.Load()))] }

// All returns the queues that jobs are taken from.
func (s *Shards) All() []*Queue { return s.queues[:s.taken.Load()] }

// At returns a queue by its number, from 0, whether it is used or not.
func (s *Shards) At(shard int) *Queue { return s.queues[shard] }

// Beyond returns the queues that jobs are not taken from. Most deployments have none of
// them.
func (s *Shards) Beyond() []*Queue { return s.queues[s.taken.Load():] }

// Counts returns the numbers that were read last.
func (s *Shards) Counts() ShardCounts {
	return ShardCounts{Put: int(s.put.Load()), Taken: int(s.taken.Load())}
}

func (s *Shards) set(c ShardCounts) {
	if s.fixed {
		c = ShardCounts{s.Counts().Put, max(s.Counts().Put, c.Taken)}
	}
	s.put.Store(int32(c.Put))
	s.taken.Store(int32(c.Taken))
}

// Read reads the numbers of queues from the metadata of the first one. It costs one
// call. After an error, and where the metadata makes no sense, they stay as they were.
func (s *Shards) Read(ctx context.Context) (ShardCounts, error) {
	_, err := s.Depth(ctx)
	return s.Counts(), err
}

// Depth is [Shards.Read], and returns the approximate number of messages on the first
// queue, which comes with the same call.
func (s *Shards) Depth(ctx context.Context) (int, error) {
	properties, err := s.Main().properties(ctx)
	if err != nil {
		return 0, err
	}
	c, err := parseShards(properties.Metadata)
	if err != nil {
		return 0, fmt.Errorf("%w: metadata of queue %s: %w", ErrShards, s.Main().Name(), err)
	}
	s.set(c)
	return int(*properties.ApproximateMessagesCount), nil
}

// putAge is how old the number may be of the queues that jobs are put over.
const putAge = time.Minute

// ReadToPut reads the numbers for a program that puts jobs, at most once a minute. Where
// they cannot be read, jobs go to the queues that are known, the first at least: workers
// take from that in any case.
func (s *Shards) ReadToPut(ctx context.Context) {
	isRecent := func() bool {
		at := s.readAt.Load()
		return at != nil && time.Since(*at) < putAge
	}
	if s.fixed || isRecent() {
		return
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return
	}
	if isRecent() {
		return
	}
	_, err := s.Read(ctx)
	if err == nil || ctx.Err() == nil {
		s.readAt.Store(new(time.Now()))
	}
}

// Write records the numbers of queues, which have to exist. Other metadata of the first
// queue stays. It costs two calls.
func (s *Shards) Write(ctx context.Context, c ShardCounts) error {
	if err := c.Validate(); err != nil {
		return err
	}
	values := map[string]string{shardsKey: "", takenKey: ""}
	if c.Put > 1 {
		values[shardsKey] = strconv.Itoa(c.Put)
	}
	if c.Taken > c.Put {
		values[takenKey] = strconv.Itoa(c.Taken)
	}
	if err := s.Main().setMetadata(ctx, values); err != nil {
		return fmt.Errorf("record the number of queues on %s: %w", s.Main().Name(), err)
	}
	s.set(c)
	return nil
}

// setMetadata sets some values of the queue's metadata, and removes empty ones. The
// others stay. It costs two calls.
func (q *Queue) setMetadata(ctx context.Context, values map[string]string) error {
	properties, err := q.properties(ctx)
	if err != nil {
		return err
	}
	next := map[string]*string{}
	maps.Copy(next, properties.Metadata)
	for key, value := range values {
		maps.DeleteFunc(next, func(name string, _ *string) bool { return strings.EqualFold(name, key) })
		if value != "" {
			next[key] = &value
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = q.client.SetMetadata(ctx, &azqueue.SetMetadataOptions{Metadata: next})
	return err
}

// parseShards reads the numbers of queues. Names of metadata come back in any case.
func parseShards(metadata map[string]*string) (ShardCounts, error) {
	c := ShardCounts{}
	for key, to := range map[string]*int{shardsKey: &c.Put, takenKey: &c.Taken} {
		for name, value := range metadata {
			if !strings.EqualFold(name, key) || value == nil {
				continue
			}
			n, err := strconv.Atoi(*value)
			if err != nil {
				return c, fmt.Errorf("%s is %q, which is no number", key, *value)
			}
			*to = n
		}
	}
	c.Put = max(c.Put, 1)
	c.Taken = max(c.Taken, c.Put)
	return c, c.Validate()
}
