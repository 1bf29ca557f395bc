package presence

import (
	"slices"
	"strings"
)

// maxKinds bounds the list of kinds in bytes, so that the metadata stays well under
// the service's 8 KiB: room for some 150 kinds of usual names.
const maxKinds = 2 << 10

// MoreKinds stands in a heartbeat for kinds that the list has no room for. It is
// no name that a kind can have.
const MoreKinds = "*"

// Has is what a heartbeat says about a kind.
type Has int

// What a heartbeat may say. A list that was cut, and a heartbeat of a version that
// does not list kinds, leave it open.
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

// Takes reports whether the worker takes jobs from a queue, which it does too if it
// does not say.
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
