// Package pages divides the lists of Azure's management interfaces into pages. Azure may
// send a page shorter than its limit, or without an item, with a link to the next page.
package pages

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

// Pages draws the pages of an emulator's lists. The zero value answers with the whole list.
// It is safe for concurrent use; its fields must not be changed once it is in use.
type Pages struct {
	Size int    // items of each page; 0 for all
	Seed uint64 // if not 0, pages of 0 to 2 items are drawn from it, and Size does not count

	mu     sync.Mutex
	random *rand.Rand
	links  int // to a next page
}

// Part returns the page of a list that a token names, with at least some items if the list
// has them, and the token of the next page; empty for the last.
func Part[T any](p *Pages, all []T, token string, least int) (part []T, next string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, _, _ := strings.Cut(token, "-")
	start, _ := strconv.Atoi(text)
	start = min(max(start, 0), len(all))
	size := p.Size
	if size <= 0 {
		size = len(all)
	}
	if p.Seed != 0 {
		if p.random == nil {
			p.random = rand.New(rand.NewPCG(p.Seed, 0))
		}
		size = max(p.random.IntN(3), least)
	}
	end := start + size
	if end >= len(all) {
		return all[start:], ""
	}
	p.links++ // tokens differ, also of two pages that begin at the same item
	return all[start:end], fmt.Sprintf("%d-%d", end, p.links)
}
