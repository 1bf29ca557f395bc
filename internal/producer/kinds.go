package producer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// aliveFor is how old the heartbeat of a worker may be that counts as alive: three of them
// were not written.
const aliveFor = 3 * presence.Every

// UnknownKindError says that no live worker has a handler for a kind.
type UnknownKindError struct {
	Kind, Queue string

	// Workers is how many live workers take from the queue, and Kinds their kinds.
	Workers int
	Kinds   []string
}

// Nearest returns the kind that was probably meant, empty if none is similar.
func (e *UnknownKindError) Nearest() string { return spelling.Nearest(e.Kind, e.Kinds) }

// Error says which kinds are known, and which kind was probably meant.
func (e *UnknownKindError) Error() string {
	if e.Workers == 0 {
		return fmt.Sprintf("no worker is alive that takes from queue %s, so nothing tells whether a worker has kind %q; its jobs wait for one",
			e.Queue, e.Kind)
	}
	text := fmt.Sprintf("no live worker on queue %s has kind %q", e.Queue, e.Kind)
	if nearest := e.Nearest(); nearest != "" {
		text += fmt.Sprintf(" (did you mean %q?)", nearest)
	}
	const most = 10
	shown, more := e.Kinds, ""
	if len(shown) > most {
		shown, more = shown[:most], fmt.Sprintf(" and %d more", len(shown)-most)
	}
	return fmt.Sprintf("%s; the kinds of %d workers are: %s%s. A job goes to the poison queue if no worker has had its kind for an hour",
		text, e.Workers, strings.Join(shown, ", "), more)
}

// kinds tells which kinds live workers have, by one listing of the heartbeats.
type kinds struct {
	listed  bool
	workers []presence.Listed
	err     error
	known   map[string]*UnknownKindError // by queue and kind; nil for a kind that a worker has
}

// check returns a [*UnknownKindError] if the workers of a queue do not have a kind, and
// whether that is the first answer for it. Where heartbeats cannot be read it returns nil.
func (k *kinds) check(ctx context.Context, store *presence.Store, q *queue.Queue, kind string) (unknown *UnknownKindError, first bool) {
	if !k.listed {
		k.listed, k.known = true, map[string]*UnknownKindError{}
		k.workers, k.err = store.List(ctx)
	}
	if k.err != nil && !bloberror.HasCode(k.err, bloberror.ContainerNotFound) {
		return nil, false
	}
	name := q.Name() + " " + kind
	if unknown, ok := k.known[name]; ok {
		return unknown, false
	}
	k.known[name] = whoHas(k.workers, q.Name(), kind)
	return k.known[name], true
}

// whoHas returns a [*UnknownKindError] unless a live worker of a queue has a kind, or may
// have it.
func whoHas(workers []presence.Listed, queueName, kind string) *UnknownKindError {
	unknown := &UnknownKindError{Kind: kind, Queue: queueName}
	for _, w := range workers {
		if w.Age > aliveFor || w.State == lifecycle.Stopped.String() || !w.Takes(queueName) {
			continue
		}
		if w.HasKind(kind) != presence.HasNot {
			return nil
		}
		unknown.Workers++
		unknown.Kinds = append(unknown.Kinds, w.Kinds...)
	}
	slices.Sort(unknown.Kinds)
	unknown.Kinds = slices.Compact(unknown.Kinds)
	return unknown
}
