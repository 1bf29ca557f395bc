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

// The values of [Has]. MayHave is for a list that is cut or missing.
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

// maxOffers and maxOffer limit the list of offers in a heartbeat, and each of them in bytes.
const (
	maxOffers = 8
	maxOffer  = 64
)

// OfferFor returns the offer of workers that meet the needs of a state: their first word.
func OfferFor(needs string) string {
	offer, _, _ := strings.Cut(needs, " ")
	return offer
}

// Meets reports whether the worker runs jobs of a kind and meets the needs of a state, by their
// first word. Each worker meets empty needs. A worker that announces nothing may meet all.
func (p Presence) Meets(kind, needs string) Has {
	switch has := p.HasKind(kind); {
	case needs == "" || has == HasNot:
		return has
	case slices.Contains(p.Offers, OfferFor(needs)):
		return has
	case len(p.Offers) == 0:
		return MayHave
	}
	return HasNot
}

func formatOffers(offers []string) string {
	offers = slices.Compact(slices.Sorted(slices.Values(offers)))
	offers = slices.DeleteFunc(offers, func(o string) bool { return len(o) > maxOffer || strings.Contains(o, ",") })
	return strings.Join(offers[:min(len(offers), maxOffers)], ",")
}

// Takes reports whether the worker claims messages from a queue. A heartbeat without
// queues counts as yes.
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
