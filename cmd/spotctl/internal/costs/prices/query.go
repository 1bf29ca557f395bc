package prices

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Query says which prices are asked for.
type Query struct {
	Sizes   []string // such as Standard_D2as_v5
	Regions []string // such as westeurope
	Windows bool     // prices of Windows VMs instead of Linux VMs

	// Currency is the three-letter code of the retail prices. Price history and
	// maximum prices are always in USD. Default USD.
	Currency string

	// Subscription is the id of the subscription whose quota, sizes and placement
	// scores are asked for. Without it they are left out.
	Subscription string

	// Count is the number of VMs that placement scores are for. Default 1.
	Count int

	// Zones asks for a placement score of each zone.
	Zones bool
}

// Limits of one query. They keep a mistake, such as all sizes in all regions, from
// becoming thousands of requests.
const (
	mostSizes   = 100
	mostRegions = 30
)

var (
	sizePattern         = regexp.MustCompile(`^[A-Za-z]+_[A-Za-z0-9_-]{1,60}$`)
	regionPattern       = regexp.MustCompile(`^[a-z][a-z0-9]{2,39}$`)
	currencyPattern     = regexp.MustCompile(`^[A-Z]{3}$`)
	subscriptionPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// Normalize returns the query with defaults, without duplicates and in the services'
// spelling: d2AS_v5 becomes Standard_D2as_v5, "West Europe" westeurope, eur EUR. Its
// error names what cannot be asked for.
func (q Query) Normalize() (Query, error) {
	if q.Currency = strings.ToUpper(strings.TrimSpace(q.Currency)); q.Currency == "" {
		q.Currency = USD
	}
	q.Count = max(q.Count, 1)
	q.Sizes = distinct(q.Sizes, SizeName)
	q.Regions = distinct(q.Regions, regionName)
	switch {
	case len(q.Sizes) == 0:
		return q, fmt.Errorf("no VM size is given: name at least one, such as Standard_D2as_v5")
	case len(q.Regions) == 0:
		return q, fmt.Errorf("no region is given: name at least one, such as --region westeurope")
	case len(q.Sizes) > mostSizes:
		return q, fmt.Errorf("%d VM sizes: ask for at most %d at once", len(q.Sizes), mostSizes)
	case len(q.Regions) > mostRegions:
		return q, fmt.Errorf("%d regions: ask for at most %d at once", len(q.Regions), mostRegions)
	case !currencyPattern.MatchString(q.Currency):
		return q, fmt.Errorf("currency %q is not a code of three letters, such as USD or EUR", q.Currency)
	case q.Subscription != "" && !subscriptionPattern.MatchString(q.Subscription):
		return q, fmt.Errorf("subscription %q is not an id such as 00000000-0000-0000-0000-000000000000; az account show --query id prints it",
			q.Subscription)
	}
	for _, size := range q.Sizes {
		if !sizePattern.MatchString(size) {
			return q, fmt.Errorf("VM size %q is not a name such as Standard_D2as_v5", size)
		}
	}
	for _, region := range q.Regions {
		if !regionPattern.MatchString(region) {
			return q, fmt.Errorf("region %q is not a name such as westeurope; az account list-locations lists them", region)
		}
	}
	return q, nil
}

// regionName turns a region's display name into its name.
func regionName(given string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(given), " ", ""))
}

// distinct returns the names in the order given, each once. Names that differ in case
// alone are the same.
func distinct(given []string, name func(string) string) []string {
	var names []string
	for _, text := range given {
		n := name(text)
		if n != "" && !slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(other, n) }) {
			names = append(names, n)
		}
	}
	return names
}

// os returns the operating system as Resource Graph spells it.
func (q Query) os() string {
	if q.Windows {
		return "windows"
	}
	return "linux"
}
