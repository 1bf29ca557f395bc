package prices

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// EvictionRate returns the evictions to expect of VMs of any of the sizes in any of the
// regions, in whole percent an hour: the upper end of the highest class that Azure
// publishes for them. It is 0 if none is known. Only Resource Graph is asked. The gaps name
// the missing data; the error is for a context that was cancelled.
func EvictionRate(ctx context.Context, c *Client, q Query) (percent int, missing []Gap, err error) {
	g := &gathering{client: c, query: q}
	if g.signedIn(ctx) {
		askGraph(ctx, g, "eviction rates", evictionsOf(q), &g.evictions)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return 0, nil, ctx.Err()
	}
	g.explainEmpty()
	known := map[string]bool{}
	for _, row := range g.evictions {
		rate, ok := ParseEviction(row.Rate)
		if !ok {
			g.gap("Resource Graph", "the eviction rate of "+cut(row.SkuName)+" in "+cut(row.Location),
				fmt.Sprintf("%q cannot be read", cut(row.Rate)))
		}
		known[strings.ToLower(row.SkuName+" "+row.Location)] = true
		percent = max(percent, int(math.Ceil(rate.High)))
	}
	for _, size := range q.Sizes {
		for _, region := range q.Regions {
			if len(known) > 0 && !known[strings.ToLower(size+" "+region)] {
				g.gap("Resource Graph", "the eviction rate of "+size+" in "+region, "Azure publishes none")
			}
		}
	}
	return percent, g.gaps, nil
}
