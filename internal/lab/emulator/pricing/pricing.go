// Package pricing emulates the services that know what Spot VMs cost, in the shapes that
// Microsoft documents: the Retail Prices API ("Azure Retail Prices overview"), the table
// SpotResources of Resource Graph ("Use Azure Spot Virtual Machines"), and of the compute
// provider the lists of sizes and usages and the placement scores ("Spot Placement
// Score", examples of api version 2025-06-05).
//
// It is made for tests: prices are given, and any request can be made to fail.
package pricing

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spotworker/spotworker/internal/lab/emulator/pages"
)

// Offer holds the services' data about one size in one region. Prices of 0 are not
// listed.
type Offer struct {
	Size, Region  string
	Spot, Regular float64 // for Linux; Windows costs 0.1 more
	History       []Point // newest first, as the service lists them
	Eviction      string  // class; empty for none
	Score         string  // placement score; empty for High
	Cores         int     // 0: the size is not listed
	NoSpot        bool    // listed, but not offered as Spot
	Restricted    bool    // listed, but not for this subscription
	Architecture  string  // default x64
}

// Point is a Spot price from a date on.
type Point struct {
	Date string
	USD  float64
}

// Server answers requests. Its fields must not be changed once it is in use.
type Server struct {
	Offers   []Offer
	Currency string // of the answers, for any request; empty for the requested currency
	Quota    int    // limit of Spot cores in each region; default 100

	// Pages divides every list. Retail prices have no empty pages.
	Pages pages.Pages

	// Fail, if set, answers a request itself and reports whether it did. n counts the
	// requests to the same service from 1 on: retail, history, evictions, skus, usages
	// or placement.
	Fail func(service string, n int, w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	calls map[string]int
}

// Calls returns how many requests a service had.
func (s *Server) Calls(service string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[service]
}

// All returns how many requests all services had.
func (s *Server) All() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for _, n := range s.calls {
		sum += n
	}
	return sum
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&body) // a GET has none
	}
	path := strings.ToLower(r.URL.Path)
	var service string
	var answer func(http.ResponseWriter, *http.Request, map[string]any)
	switch {
	case path == "/api/retail/prices":
		service, answer = "retail", s.retail
	case path == "/providers/microsoft.resourcegraph/resources":
		service, answer = "history", s.graph
		if query, _ := body["query"].(string); strings.Contains(query, "skuspotevictionrate") {
			service = "evictions"
		}
	case strings.HasSuffix(path, "/providers/microsoft.compute/skus"):
		service, answer = "skus", s.skus
	case strings.HasSuffix(path, "/usages"):
		service, answer = "usages", s.usages
	case strings.HasSuffix(path, "/placementscores/spot/generate"):
		service, answer = "placement", s.placement
	default:
		Refuse(w, http.StatusNotFound, "NotFound", "no such address: "+r.URL.Path)
		return
	}
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[service]++
	n := s.calls[service]
	s.mu.Unlock()
	if service != "retail" && !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		Refuse(w, http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
		return
	}
	if s.Fail != nil && s.Fail(service, n, w, r) {
		return
	}
	answer(w, r, body)
}

// Refuse answers with an error in the resource manager's form.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	write(w, status, map[string]any{"error": map[string]any{"code": code, "message": message}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

var (
	regionTerm = regexp.MustCompile(`armRegionName eq '([^']*)'`)
	sizeTerm   = regexp.MustCompile(`armSkuName eq '([^']*)'`)
	nameList   = regexp.MustCompile(`in~ \(([^)]*)\)`)
)

// terms returns the values that a filter names, in the case they are given in.
func terms(pattern *regexp.Regexp, filter string) []string {
	var values []string
	for _, match := range pattern.FindAllStringSubmatch(filter, -1) {
		values = append(values, match[1])
	}
	return values
}

func (s *Server) retail(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	query := r.URL.Query()
	filter := query.Get("$filter")
	sizes, regions := terms(sizeTerm, filter), terms(regionTerm, filter)
	currency := strings.Trim(query.Get("currencyCode"), "'")
	if currency == "" {
		currency = "USD"
	}
	if s.Currency != "" {
		currency = s.Currency
	}
	var items []map[string]any
	for _, o := range s.Offers {
		if slices.Contains(sizes, o.Size) && slices.Contains(regions, o.Region) { // case-sensitive
			items = append(items, o.items(currency)...)
		}
	}
	part, next := pages.Part(&s.Pages, items, query.Get("$skip"), 1)
	link := ""
	if next != "" {
		skip, _, _ := strings.Cut(next, "-")
		query.Set("$skip", skip)
		link = "https://prices.azure.com:443/api/retail/prices?" + query.Encode()
	}
	write(w, http.StatusOK, map[string]any{
		"BillingCurrency": currency, "CustomerEntityId": "Default", "CustomerEntityType": "Retail",
		"Items": part, "NextPageLink": link, "Count": len(part),
	})
}

// items are the prices of an offer, with items that must be left out: another operating
// system, Low Priority, reservations, Cloud Services, prices to come, and a duplicate.
func (o Offer) items(currency string) []map[string]any {
	meter := strings.ReplaceAll(strings.TrimPrefix(o.Size, "Standard_"), "_", " ")
	item := func(price float64, product, suffix, kind, start string) map[string]any {
		return map[string]any{
			"currencyCode": currency, "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price,
			"armRegionName": o.Region, "location": "EU West", "effectiveStartDate": start,
			"meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923", "meterName": meter + suffix,
			"productId": "DZH318Z0BQPS", "skuId": "DZH318Z0BQPS/00TG", "productName": product, "skuName": meter + suffix,
			"serviceName": "Virtual Machines", "serviceId": "DZH313Z7MMC8", "serviceFamily": "Compute",
			"unitOfMeasure": "1 Hour", "type": kind, "isPrimaryMeterRegion": true, "armSkuName": o.Size,
		}
	}
	const linux, windows, since = "Virtual Machines Series", "Virtual Machines Series Windows", "2024-01-01T00:00:00Z"
	var items []map[string]any
	for _, price := range []struct {
		value  float64
		suffix string
	}{{o.Regular, ""}, {o.Spot, " Spot"}} {
		if price.value <= 0 {
			continue
		}
		items = append(items,
			item(price.value+0.1, windows, price.suffix, "Consumption", since),
			item(price.value*3, linux, price.suffix, "Consumption", "2023-01-01T00:00:00Z"), // before the one in force
			item(price.value, linux, price.suffix, "Consumption", since),
			item(price.value, linux, price.suffix, "Consumption", since), // a duplicate
			item(price.value*5, linux, price.suffix, "Consumption", "2999-01-01T00:00:00Z"),
		)
	}
	if o.Regular > 0 {
		items = append(items,
			item(o.Regular/5, linux, " Low Priority", "Consumption", since),
			item(o.Regular*5000, linux, "", "Reservation", since),
			item(o.Regular*2, "Virtual Machines Series CloudServices", "", "Consumption", since),
		)
	}
	return items
}

// graph answers a query of SpotResources. Its rows belong to the tenant: a request with
// subscriptions or management groups gets none (issues 77378 and 103702 of grafana/grafana).
func (s *Server) graph(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	query, _ := body["query"].(string)
	lists := nameList.FindAllStringSubmatch(query, -1)
	if len(lists) != 2 {
		Refuse(w, http.StatusBadRequest, "BadRequest", "Please provide below info when asking for support")
		return
	}
	listed := func(list int, name string) bool {
		return strings.Contains(strings.ToLower(lists[list][1]), "'"+strings.ToLower(name)+"'")
	}
	subscriptions, _ := body["subscriptions"].([]any)
	groups, _ := body["managementGroups"].([]any)
	scoped := len(subscriptions)+len(groups) > 0
	rows := []map[string]any{}
	for _, o := range s.Offers {
		if scoped || !listed(0, o.Size) || !listed(1, o.Region) {
			continue
		}
		row := map[string]any{"skuName": strings.ToLower(o.Size), "location": o.Region}
		switch {
		case strings.Contains(query, "skuspotevictionrate") && o.Eviction != "":
			row["spotEvictionRate"] = o.Eviction
		case strings.Contains(query, "skuspotpricehistory") && len(o.History) > 0:
			var history []map[string]any
			for _, p := range o.History {
				point := map[string]any{"priceUSD": p.USD}
				if p.Date != "" {
					point["effectiveDate"] = p.Date
				}
				history = append(history, point)
			}
			row["spotPrices"] = history
		default:
			continue
		}
		rows = append(rows, row)
	}
	options, _ := body["options"].(map[string]any)
	token, _ := options["$skipToken"].(string)
	part, next := pages.Part(&s.Pages, rows, token, 0)
	answer := map[string]any{"totalRecords": len(rows), "count": len(part), "data": part, "facets": []any{}, "resultTruncated": "false"}
	if next != "" {
		answer["$skipToken"] = next
	}
	write(w, http.StatusOK, answer)
}

// list answers with a page of a list of the resource manager.
func list[T any](s *Server, w http.ResponseWriter, r *http.Request, all []T) {
	query := r.URL.Query()
	part, next := pages.Part(&s.Pages, all, query.Get("$skiptoken"), 0)
	answer := map[string]any{"value": part}
	if next != "" {
		query.Set("$skiptoken", next)
		answer["nextLink"] = "https://management.azure.com" + r.URL.Path + "?" + query.Encode()
	}
	write(w, http.StatusOK, answer)
}

func (s *Server) skus(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	region := strings.TrimSuffix(strings.TrimPrefix(r.URL.Query().Get("$filter"), "location eq '"), "'")
	all := []map[string]any{{"resourceType": "disks", "name": "Premium_LRS", "locations": []string{region}}}
	for _, o := range s.Offers {
		if o.Region != region || o.Cores == 0 {
			continue
		}
		capability := func(name, value string) map[string]string { return map[string]string{"name": name, "value": value} }
		architecture := o.Architecture
		if architecture == "" {
			architecture = "x64"
		}
		restrictions := []any{}
		if o.Restricted {
			restrictions = append(restrictions, map[string]any{
				"type": "Location", "values": []string{region}, "reasonCode": "NotAvailableForSubscription",
				"restrictionInfo": map[string]any{"locations": []string{region}},
			})
		}
		all = append(all, map[string]any{
			"resourceType": "virtualMachines", "name": o.Size, "tier": "Standard", "locations": []string{region},
			"locationInfo": []any{map[string]any{"location": region, "zones": []string{"3", "1", "2"}}},
			"capabilities": []any{
				capability("MaxResourceVolumeMB", "0"), capability("vCPUs", strconv.Itoa(o.Cores)), capability("MemoryGB", strconv.Itoa(4*o.Cores)),
				capability("CpuArchitectureType", architecture), capability("LowPriorityCapable",
					map[bool]string{true: "False", false: "True"}[o.NoSpot]),
			},
			"restrictions": restrictions,
		})
	}
	list(s, w, r, all)
}

func (s *Server) usages(w http.ResponseWriter, r *http.Request, _ map[string]any) {
	limit := s.Quota
	if limit == 0 {
		limit = 100
	}
	usage := func(name, localized string, used, limit int) map[string]any {
		return map[string]any{
			"limit": limit, "unit": "Count", "currentValue": used, "name": map[string]any{"value": name, "localizedValue": localized},
		}
	}
	list(s, w, r, []map[string]any{
		usage("cores", "Total Regional vCPUs", 4, 100), usage("lowPriorityCores", "Total Regional Spot vCPUs", 2, limit),
	})
}

func (s *Server) placement(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	regions, _ := body["desiredLocations"].([]any)
	sizes, _ := body["desiredSizes"].([]any)
	zones, _ := body["availabilityZones"].(bool)
	if len(regions) == 0 || len(sizes) == 0 || len(regions) > 8 || len(sizes) > 5 {
		Refuse(w, http.StatusBadRequest, "InvalidParameter", "The values of the provided parameters are not valid.")
		return
	}
	scores := []map[string]any{}
	for _, size := range sizes {
		named, _ := size.(map[string]any)
		for _, region := range regions {
			scores = append(scores, s.scores(fmt.Sprint(named["sku"]), fmt.Sprint(region), zones)...)
		}
	}
	body["placementScores"] = scores
	write(w, http.StatusOK, body)
}

func (s *Server) scores(size, region string, zones bool) []map[string]any {
	score := "DataNotFoundOrStale"
	for _, o := range s.Offers {
		if o.Size == size && o.Region == region {
			if score = o.Score; score == "" {
				score = "High"
			}
		}
	}
	of := []string{""}
	if zones {
		of = []string{"1", "2", "3"}
	}
	var all []map[string]any
	for _, zone := range of {
		one := map[string]any{"sku": size, "region": region, "score": score, "isQuotaAvailable": true}
		if zone != "" {
			one["availabilityZone"] = zone
		}
		all = append(all, one)
	}
	return all
}
