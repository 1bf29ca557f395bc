package prices

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The table SpotResources of Azure Resource Graph, as in the queries of "Use Azure Spot
// Virtual Machines", Pricing and eviction history: prices of the last 90 days and
// eviction rates of the last 28. Its rows belong to the tenant: a request that names
// subscriptions or management groups gets none.
const (
	historyQuery = `SpotResources
| where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location'
| where sku.name in~ (%s) and location in~ (%s) and properties.osType =~ '%s'
| project skuName = tostring(sku.name), location, spotPrices = properties.spotPrices
| order by skuName asc, location asc`

	evictionQuery = `SpotResources
| where type =~ 'microsoft.compute/skuspotevictionrate/location'
| where sku.name in~ (%s) and location in~ (%s)
| project skuName = tostring(sku.name), location, spotEvictionRate = tostring(properties.evictionRate)
| order by skuName asc, location asc`

	// graphPage is the largest page that Resource Graph gives ("Working with large
	// Azure resource data sets").
	graphPage = 1000
)

// historyRow is a row of historyQuery. Microsoft documents priceUSD only; the date is
// read where there is one.
type historyRow struct {
	SkuName    string `json:"skuName"`
	Location   string `json:"location"`
	SpotPrices []struct {
		EffectiveDate string      `json:"effectiveDate"`
		PriceUSD      json.Number `json:"priceUSD"`
	} `json:"spotPrices"`
}

// points returns the row's prices, oldest first. Prices that are no positive number are
// left out.
func (r historyRow) points() []Point {
	var points []Point
	for _, price := range r.SpotPrices {
		usd, err := price.PriceUSD.Float64()
		if err != nil || !(usd > 0) {
			continue
		}
		p := Point{USD: usd}
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, price.EffectiveDate); err == nil {
				p.From = t.UTC()
				break
			}
		}
		points = append(points, p)
	}
	sortHistory(points)
	return points
}

// evictionRow is a row of evictionQuery.
type evictionRow struct {
	SkuName  string `json:"skuName"`
	Location string `json:"location"`
	Rate     string `json:"spotEvictionRate"`
}

// historyOf is the query for price histories.
func historyOf(q Query) string {
	return fmt.Sprintf(historyQuery, quoted(q.Sizes), quoted(q.Regions), q.os())
}

// evictionsOf is the query for eviction rates.
func evictionsOf(q Query) string {
	return fmt.Sprintf(evictionQuery, quoted(q.Sizes), quoted(q.Regions))
}

// quoted lists names for a query. Normalize has made sure that they contain no quote.
func quoted(names []string) string { return "'" + strings.Join(names, "', '") + "'" }

// graphVersion is the version of Resource Graph's interface.
const graphVersion = "2024-04-01"

// graphRequest asks for a page of rows, and graphAnswer has one.
type (
	graphRequest struct {
		Query   string       `json:"query"`
		Options graphOptions `json:"options"`
	}
	graphOptions struct {
		ResultFormat string `json:"resultFormat"`
		Top          int    `json:"$top"`
		SkipToken    string `json:"$skipToken,omitempty"`
	}
	graphAnswer[R any] struct {
		Data      []R    `json:"data"`
		SkipToken string `json:"$skipToken"`
	}
)

// rows returns all rows of a query. It sends no scope, see the queries.
func rows[R any](ctx context.Context, c *Client, query string) ([]R, error) {
	return collect("", func(token string) ([]R, string, error) {
		var answer graphAnswer[R]
		err := post(ctx, c, c.armURL+"/providers/Microsoft.ResourceGraph/resources?api-version="+graphVersion,
			graphRequest{query, graphOptions{ResultFormat: "objectArray", Top: graphPage, SkipToken: token}}, &answer)
		return answer.Data, answer.SkipToken, err
	})
}
