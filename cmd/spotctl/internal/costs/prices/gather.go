package prices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// atOnce is how many requests are made at once. Resource Graph allows 15 in 5 s.
const atOnce = 6

// Roles that sources need.
const (
	reader        = "Reader on the subscription"
	readerOnAny   = "Reader on a subscription"
	placementRole = "Compute Recommendations Role on the subscription"
)

// sources says which sources have answered in full.
type sources struct {
	retail   bool
	machines map[string]bool // by region
}

// gathering collects the answers of all sources.
type gathering struct {
	client *Client
	query  Query

	mu        sync.Mutex
	gaps      []Gap
	retail    []retailItem
	histories []historyRow
	evictions []evictionRow
	machines  map[string][]sku // by region
	quotas    map[string]*Quota
	scores    []placementScore
	known     sources

	empty  []string // data for which Resource Graph has no rows
	reader bool     // whether a source has answered that needs a role on the subscription
}

// Gather asks all sources at once and returns their answers as a report. The query must
// be normalized. Sources that fail leave gaps; the error is for a context that has ended.
func Gather(ctx context.Context, c *Client, q Query, now time.Time) (Report, error) {
	g := &gathering{
		client: c, query: q, machines: map[string][]sku{}, quotas: map[string]*Quota{},
		known: sources{retail: true, machines: map[string]bool{}},
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, sizes := range slices.Collect(slices.Chunk(q.Sizes, retailSizes)) {
		for regions := range slices.Chunk(q.Regions, retailRegions) {
			group.Go(func() error { g.askRetail(ctx, sizes, regions); return nil })
		}
	}
	if g.signedIn(ctx) {
		group.Go(func() error { askGraph(ctx, g, "price history", historyOf(q), &g.histories); return nil })
		group.Go(func() error { askGraph(ctx, g, "eviction rates", evictionsOf(q), &g.evictions); return nil })
		if q.Subscription == "" {
			g.gap("subscription", "sizes, quota and placement scores", "no subscription is given: --subscription, or AZURE_SUBSCRIPTION_ID")
		} else {
			g.askSubscription(ctx, &group)
		}
	}
	_ = group.Wait() // no source returns an error
	if errors.Is(ctx.Err(), context.Canceled) {
		return Report{}, ctx.Err()
	}
	g.explainEmpty()
	return g.report(now), nil
}

// signedIn reports whether the sources that need a sign-in can be asked.
func (g *gathering) signedIn(ctx context.Context) bool {
	const missing = "price history, eviction rates, sizes, quota and placement scores"
	err := g.client.signIn(ctx)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errNoSignIn):
		g.gap("sign-in", missing, "not asked for, since there is no sign-in")
	default:
		why := "not signed in to Azure: run az login, or set AZURE_CLIENT_ID to the managed identity of this VM"
		if said := cut(err.Error()); !strings.HasPrefix(said, "not signed in") {
			why += " (" + said + ")"
		}
		g.gap("sign-in", missing, plaintext.Line(why))
	}
	return false
}

func (g *gathering) askSubscription(ctx context.Context, group *errgroup.Group) {
	for _, region := range g.query.Regions {
		group.Go(func() error { g.askMachines(ctx, region); return nil })
		group.Go(func() error { g.askQuota(ctx, region); return nil })
	}
	for _, sizes := range slices.Collect(slices.Chunk(g.query.Sizes, placementSizes)) {
		for regions := range slices.Chunk(g.query.Regions, placementRegions) {
			group.Go(func() error { g.askPlacement(ctx, sizes, regions); return nil })
		}
	}
}

// gap records missing data and the reason.
func (g *gathering) gap(source, missing, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gaps = append(g.gaps, Gap{source, missing, reason})
}

func (g *gathering) askRetail(ctx context.Context, sizes, regions []string) {
	items, err := g.client.retailPrices(ctx, g.query, sizes, regions)
	g.mu.Lock()
	g.retail = append(g.retail, items...)
	g.known.retail = g.known.retail && err == nil
	g.mu.Unlock()
	if err != nil {
		g.gap("retail prices", "retail prices of "+names(sizes)+" in "+names(regions), explain(err, ""))
	}
}

// askGraph keeps Resource Graph's rows for a query in to, and records a failure as a gap.
// Resource Graph returns no error for an identity that may read no subscription: its
// answer is empty.
func askGraph[R any](ctx context.Context, g *gathering, missing, query string, to *[]R) {
	all, err := rows[R](ctx, g.client, query)
	g.mu.Lock()
	*to = all
	if err == nil && len(all) == 0 {
		g.empty = append(g.empty, missing)
	}
	g.mu.Unlock()
	if err != nil {
		g.gap("Resource Graph", missing, explain(err, readerOnAny))
	}
}

// explainEmpty records what Resource Graph has no rows for as gaps, once all sources have
// answered: only then is it known whether a missing role can be the reason.
func (g *gathering) explainEmpty() {
	reason := "Azure publishes none for these sizes and regions: check their names"
	if !g.reader {
		reason += ", and that the signed-in identity may read a subscription of this tenant (az account list shows them)"
	}
	for _, missing := range g.empty {
		g.gap("Resource Graph", missing, reason)
	}
}

func (g *gathering) askMachines(ctx context.Context, region string) {
	all, err := g.client.machines(ctx, g.query, region)
	g.mu.Lock()
	g.machines[region] = all
	g.reader = g.reader || err == nil
	g.known.machines[region] = err == nil && len(all) > 0
	g.mu.Unlock()
	switch {
	case err != nil:
		g.gap("VM sizes", "what "+region+" offers to the subscription", explain(err, reader))
	case len(all) == 0:
		g.gap("VM sizes", "what "+region+" offers to the subscription", "no sizes are listed there; is the region's name right? az account "+
			"list-locations lists them")
	}
}

func (g *gathering) askQuota(ctx context.Context, region string) {
	q, err := g.client.quota(ctx, g.query, region)
	g.mu.Lock()
	g.quotas[region] = q
	g.reader = g.reader || err == nil
	g.mu.Unlock()
	switch {
	case err != nil:
		g.gap("quota", "the Spot quota in "+region, explain(err, reader))
	case q == nil:
		g.gap("quota", "the Spot quota in "+region, "the region lists none")
	}
}

func (g *gathering) askPlacement(ctx context.Context, sizes, regions []string) {
	scores, err := g.client.placement(ctx, g.query, sizes, regions)
	g.mu.Lock()
	g.scores = append(g.scores, scores...)
	g.mu.Unlock()
	if err != nil {
		g.gap("placement scores", "placement scores of "+names(sizes)+" in "+names(regions), explain(err, placementRole))
	}
}

// names lists names for people, the first few of them.
func names(all []string) string {
	if len(all) <= 3 {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:2], ", "), len(all)-2)
}

// report puts the answers together: an offer for each size and region, in the order of
// the query.
func (g *gathering) report(now time.Time) Report {
	r := Report{Currency: g.query.Currency}
	g.checkCurrency()
	for _, size := range g.query.Sizes {
		for _, region := range g.query.Regions {
			o := g.offer(size, region, now)
			o.judge(g.query, g.known)
			r.Offers = append(r.Offers, o)
		}
	}
	slices.SortFunc(g.gaps, func(a, b Gap) int {
		return strings.Compare(a.Source+a.Missing+a.Reason, b.Source+b.Missing+b.Reason)
	})
	r.Gaps = g.gaps
	return r
}

// checkCurrency drops prices in another currency than was asked for.
func (g *gathering) checkCurrency() {
	other := ""
	g.retail = slices.DeleteFunc(g.retail, func(i retailItem) bool {
		if strings.EqualFold(i.CurrencyCode, g.query.Currency) {
			return false
		}
		other = i.CurrencyCode
		return true
	})
	if other != "" {
		g.known.retail = false
		g.gap("retail prices", "prices in "+g.query.Currency, fmt.Sprintf("the service answered in %q; it may not have this currency",
			cut(other)))
	}
}

func (g *gathering) offer(size, region string, now time.Time) Offer {
	is := func(s, r string) bool { return strings.EqualFold(s, size) && strings.EqualFold(r, region) }
	o := Offer{
		Size: size, Region: region, Quota: g.quotas[region],
		Spot:    pick(g.retail, size, region, true, g.query.Windows, now),
		Regular: pick(g.retail, size, region, false, g.query.Windows, now),
	}
	for _, row := range g.histories {
		if is(row.SkuName, row.Location) {
			if o.History = row.points(); len(o.History) > 0 {
				o.SpotUSD = o.History[len(o.History)-1].USD
			}
		}
	}
	for _, row := range g.evictions {
		if !is(row.SkuName, row.Location) {
			continue
		}
		rate, ok := ParseEviction(row.Rate)
		if o.Eviction = rate; !ok {
			o.Problems = append(o.Problems, Problem{Text: fmt.Sprintf("eviction rate %q cannot be read", cut(row.Rate))})
		}
	}
	for _, s := range g.machines[region] {
		if strings.EqualFold(s.Name, size) {
			o.Machine = s.machine()
		}
	}
	for _, s := range g.scores {
		if is(s.SKU, s.Region) {
			o.Placement = append(o.Placement, Placement{Zone: s.Zone, Score: s.Score, NoQuota: s.Quota != nil && !*s.Quota})
		}
	}
	slices.SortFunc(o.Placement, func(a, b Placement) int { return strings.Compare(a.Zone, b.Zone) })
	return o
}
