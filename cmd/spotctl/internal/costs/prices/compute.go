package prices

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// API versions of the compute resource provider: "Resource Skus - List", "Usage - List",
// and "Spot Placement Score".
const (
	skusVersion      = "2021-07-01"
	usageVersion     = "2024-07-01"
	placementVersion = "2025-06-05"

	// "By inputting lists of up to eight regions and five VM sizes" ("Spot Placement
	// Score").
	placementSizes   = 5
	placementRegions = 8
)

// spotCores is the name of the quota that all Spot VMs of a region share.
const spotCores = "lowPriorityCores"

// listing is a page of a list of the resource manager.
type listing[T any] struct {
	Value    []T    `json:"value"`
	NextLink string `json:"nextLink"`
}

// list returns all entries of a list. A token goes to the resource manager alone: of links only the
// path and the query count.
func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	return collect(path+"?"+encode(query), func(link string) (all []T, next string, err error) {
		var answer listing[T]
		if err := get(ctx, c.management, c.armURL+link, &answer); err != nil || answer.NextLink == "" {
			return answer.Value, "", err
		}
		to, err := url.Parse(answer.NextLink)
		if err != nil {
			return answer.Value, link, nil //nolint:nilerr // it leads nowhere
		}
		return answer.Value, to.RequestURI(), nil
	})
}

// sku is a VM size in a region.
type sku struct {
	ResourceType string   `json:"resourceType"`
	Name         string   `json:"name"`
	Locations    []string `json:"locations"`
	LocationInfo []struct {
		Location string   `json:"location"`
		Zones    []string `json:"zones"`
	} `json:"locationInfo"`
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capabilities"`
	Restrictions []struct {
		Type       string `json:"type"`
		ReasonCode string `json:"reasonCode"`
	} `json:"restrictions"`
}

// machines returns the sizes of a region.
func (c *Client) machines(ctx context.Context, q Query, region string) ([]sku, error) {
	all, err := list[sku](ctx, c, "/subscriptions/"+q.Subscription+"/providers/Microsoft.Compute/skus",
		url.Values{"api-version": {skusVersion}, "$filter": {"location eq '" + region + "'"}})
	return slices.DeleteFunc(all, func(s sku) bool { return !strings.EqualFold(s.ResourceType, "virtualMachines") }), err
}

const localNVMe = "local NVMe disks"

// machine returns the known properties of the size.
func (s sku) machine() *Machine { //nolint:cyclop // a list of properties
	m := &Machine{Local: "no local disk"}
	var disks string
	for _, c := range s.Capabilities {
		switch c.Name {
		case "vCPUs":
			m.Cores, _ = strconv.Atoi(c.Value)
		case "MemoryGB":
			m.MemoryGB, _ = strconv.ParseFloat(c.Value, 64)
		case "LowPriorityCapable":
			m.Spot = strings.EqualFold(c.Value, "True")
		case "CpuArchitectureType":
			m.Architecture = c.Value
		case "DiskControllerTypes":
			disks = c.Value
		case "MaxResourceVolumeMB":
			if size, _ := strconv.Atoi(c.Value); size > 0 && m.Local != localNVMe {
				m.Local = "a temporary disk"
			}
		case "NvmeDiskSizeInMiB":
			if size, _ := strconv.Atoi(c.Value); size > 0 {
				m.Local = localNVMe
			}
		case "PremiumIO":
			m.Premium = strings.EqualFold(c.Value, "True")
		}
	}
	if m.Disks = disks; disks == "" {
		m.Disks = "SCSI" // older sizes do not list it
	}
	for _, r := range s.Restrictions {
		if r.Type == "Location" { // a restriction of type Zone leaves other zones
			m.Restricted = r.ReasonCode
		}
	}
	for _, info := range s.LocationInfo {
		m.Zones = append(m.Zones, info.Zones...)
	}
	slices.Sort(m.Zones)
	return m
}

// usage is a quota of a region.
type usage struct {
	Name struct {
		Value string `json:"value"`
	} `json:"name"`
	CurrentValue int `json:"currentValue"`
	Limit        int `json:"limit"`
}

// quota returns the quota of Spot cores in a region; nil if it is not listed.
func (c *Client) quota(ctx context.Context, q Query, region string) (*Quota, error) {
	all, err := list[usage](ctx, c, "/subscriptions/"+q.Subscription+"/providers/Microsoft.Compute/locations/"+region+"/usages",
		url.Values{"api-version": {usageVersion}})
	for _, u := range all {
		if u.Name.Value == spotCores {
			return &Quota{Used: u.CurrentValue, Limit: u.Limit}, nil
		}
	}
	return nil, err
}

// placementRequest and placementAnswer follow the documentation of "Spot Placement Score".
type placementRequest struct {
	Locations []string        `json:"desiredLocations"`
	Sizes     []placementSize `json:"desiredSizes"`
	Count     int             `json:"desiredCount"`
	Zones     bool            `json:"availabilityZones"`
}

type placementSize struct {
	SKU string `json:"sku"`
}

type placementAnswer struct {
	Scores []placementScore `json:"placementScores"`
}

type placementScore struct {
	SKU    string `json:"sku"`
	Region string `json:"region"`
	Zone   string `json:"availabilityZone"`
	Score  string `json:"score"`
	Quota  *bool  `json:"isQuotaAvailable"`
}

// placement returns the scores of one batch.
func (c *Client) placement(ctx context.Context, q Query, sizes, regions []string) ([]placementScore, error) {
	target := c.armURL + "/subscriptions/" + q.Subscription + "/providers/Microsoft.Compute/locations/" + regions[0] +
		"/placementScores/spot/generate?api-version=" + placementVersion
	body := placementRequest{Locations: regions, Count: q.Count, Zones: q.Zones}
	for _, size := range sizes {
		body.Sizes = append(body.Sizes, placementSize{size})
	}
	var answer placementAnswer
	err := post(ctx, c, target, body, &answer)
	return answer.Scores, err
}
