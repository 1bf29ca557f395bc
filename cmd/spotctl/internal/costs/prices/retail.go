package prices

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The Retail Prices API, as in "Azure Retail Prices overview" of Microsoft's REST
// reference: no sign-in; filters are OData, and their values are case-sensitive from
// version 2023-01-01-preview on; a page has up to 1,000 items.
const (
	retailVersion = "2023-01-01-preview"

	// A size has about eight items in a region (Linux and Windows; regular, Spot and
	// Low Priority), so that a batch fits one page.
	retailSizes   = 20
	retailRegions = 5
)

// retailPage is an answer of the API.
type retailPage struct {
	Items        []retailItem `json:"Items"`
	NextPageLink string       `json:"NextPageLink"`
}

// retailItem is one price.
type retailItem struct {
	CurrencyCode       string  `json:"currencyCode"`
	RetailPrice        float64 `json:"retailPrice"`
	ArmRegionName      string  `json:"armRegionName"`
	EffectiveStartDate string  `json:"effectiveStartDate"`
	MeterName          string  `json:"meterName"`
	ProductName        string  `json:"productName"`
	SkuName            string  `json:"skuName"`
	UnitOfMeasure      string  `json:"unitOfMeasure"`
	Type               string  `json:"type"`
	Primary            bool    `json:"isPrimaryMeterRegion"`
	ArmSkuName         string  `json:"armSkuName"`
}

// retailPrices returns the items of one batch. Only the query of a link is used: a link never leads to
// another host.
func (c *Client) retailPrices(ctx context.Context, q Query, sizes, regions []string) ([]retailItem, error) {
	query := url.Values{"api-version": {retailVersion}, "$filter": {fmt.Sprintf(
		"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and (%s) and (%s)",
		anyOf("armRegionName", regions), anyOf("armSkuName", sizes))}}
	if q.Currency != USD {
		query.Set("currencyCode", "'"+q.Currency+"'")
	}
	return collect(encode(query), func(link string) ([]retailItem, string, error) {
		var answer retailPage
		if err := get(ctx, c.retail, c.retailURL+"/api/retail/prices?"+link, &answer); err != nil || answer.NextPageLink == "" {
			return answer.Items, "", err
		}
		next, err := url.Parse(answer.NextPageLink)
		if err != nil || next.RawQuery == "" {
			return answer.Items, link, nil //nolint:nilerr // it leads nowhere
		}
		return answer.Items, next.RawQuery, nil
	})
}

// anyOf is a filter that any of the values satisfies.
func anyOf(field string, values []string) string {
	terms := make([]string, len(values))
	for i, v := range values {
		terms[i] = field + " eq '" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return strings.Join(terms, " or ")
}

// isSpot reports whether an item is a Spot price: "The meterName and skuName will both
// contain Spot" ("Use Azure Spot Virtual Machines").
func (i retailItem) isSpot() bool {
	return strings.Contains(i.MeterName, "Spot") && strings.Contains(i.SkuName, "Spot")
}

// concerns reports whether an item is an hour of a VM with that operating system.
// Low Priority is Spot's predecessor, which only Batch still has; a reservation and
// Cloud Services have other prices under the same size.
func (i retailItem) concerns(windows bool) bool {
	names := i.MeterName + "|" + i.SkuName
	return i.Type == "Consumption" && i.UnitOfMeasure == "1 Hour" && i.RetailPrice > 0 &&
		!strings.Contains(names, "Low Priority") &&
		strings.Contains(names, "Spot") == i.isSpot() &&
		!strings.Contains(strings.ReplaceAll(i.ProductName, " ", ""), "CloudServices") &&
		strings.Contains(i.ProductName, "Windows") == windows
}

// pick returns the price in force at now of a size in a region; 0 if there is none. Of
// several items the newest counts, then the one of the primary meter, then the dearest:
// duplicates occur, and their order means nothing.
func pick(items []retailItem, size, region string, spot, windows bool, now time.Time) float64 {
	var found []retailItem
	for _, i := range items {
		if strings.EqualFold(i.ArmSkuName, size) && strings.EqualFold(i.ArmRegionName, region) &&
			i.concerns(windows) && i.isSpot() == spot && !i.start().After(now) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return 0
	}
	return slices.MaxFunc(found, func(a, b retailItem) int {
		switch {
		case !a.start().Equal(b.start()):
			return a.start().Compare(b.start())
		case a.Primary != b.Primary:
			if a.Primary {
				return 1
			}
			return -1
		case a.RetailPrice < b.RetailPrice:
			return -1
		case a.RetailPrice > b.RetailPrice:
			return 1
		}
		return 0
	}).RetailPrice
}

// start returns from when on the price is in force; the zero time if it cannot be read.
func (i retailItem) start() time.Time {
	t, _ := time.Parse(time.RFC3339, i.EffectiveStartDate)
	return t
}
