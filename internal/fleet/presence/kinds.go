package presence

import (
	"slices"
	"strings"
)

// maxKinds limits the list of kinds, in bytes, so that the metadata stays well under
// the service's 8 KiB. It has room for some 150 kinds.
const maxKinds = 2 << 10

// MoreKinds stands in a heartbeat for kinds that do not fit into the list. It is not
// a valid name of a kind.
const MoreKinds = "*"

// Has says whether a worker has a handler for a kind, by its heartbeat.
type Has int

// The values of [Has]. MayHave is for a list that was cut, and for a version that does
// not list kinds.
const (
	HasNot Has = iota
	MayHave
	HasIt
)

// HasKind reports whether the worker has a handler for a kind.
func (p Presence) HasKind(kind string) Has {
	switch {
	case slices.Contains(p.Kinds, kind):
		return HasIt
	case len(p.Kinds) == 0 || slices.Contains(p.Kinds, MoreKinds):
		return MayHave
	}
	return HasNot
}

// Takes reports whether the worker claims messages from a queue. A heartbeat without
// queues, of an older version, counts as yes.
func (p Presence) Takes(queue string) bool {
	return len(p.TakesFrom) == 0 || slices.Contains(p.TakesFrom, queue)
}

func formatKinds(kinds []string) string {
	kinds = slices.Sorted(slices.Values(kinds))
	all := strings.Join(kinds, ",")
	if len(all) <= maxKinds {
		return all
	}
	const more = "," + MoreKinds
	cut := strings.LastIndexByte(all[:maxKinds-len(more)+1], ',')
	return all[:cut] + more
}
