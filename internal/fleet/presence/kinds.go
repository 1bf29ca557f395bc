package presence

import (
	"encoding/base64"
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
	maxOffer  = 128
)

// OfferFor returns the least offer of workers that meet the needs of a state: their first word.
func OfferFor(needs string) string {
	offer, _, _ := strings.Cut(needs, " ")
	return offer
}

// OfferMeets reports whether an offer meets the needs of a state: it is their first word, or both
// have a set of bits in base64 behind a `+`, and the offer has at least those bits.
func OfferMeets(offer, needs string) bool {
	need := OfferFor(needs)
	name, bits, _ := strings.Cut(offer, "+")
	needed, least, both := strings.Cut(need, "+")
	if offer == need || !both || name != needed {
		return offer == need
	}
	has, err := base64.RawURLEncoding.DecodeString(bits)
	want, wrong := base64.RawURLEncoding.DecodeString(least)
	if err != nil || wrong != nil || len(has) != len(want) {
		return false
	}
	for i := range want {
		if want[i]&^has[i] != 0 {
			return false
		}
	}
	return true
}

// Meets reports whether the worker runs jobs of a kind and meets the needs of a state, by their
// first word. Each worker meets empty needs. A worker that announces nothing may meet all.
func (p Presence) Meets(kind, needs string) Has {
	switch has := p.HasKind(kind); {
	case needs == "" || has == HasNot:
		return has
	case slices.ContainsFunc(p.Offers, func(offer string) bool { return OfferMeets(offer, needs) }):
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
