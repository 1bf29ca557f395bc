package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
)

const (
	// tight is how close to the maximum price a price may come until that is reported.
	tight = 0.1

	// better is by how much another choice must be cheaper to be worth a deployment.
	better = 0.2
)

// Finding is something that should be changed in a deployment. Region is another region to move to;
// empty for none.
type Finding struct {
	Size   string `json:"size,omitempty"`
	Region string `json:"region,omitempty"`
	Text   string `json:"text"`
}

// Deployed is a deployment.
type Deployed struct {
	Sizes    []string
	Region   string
	MaxPrice float64 // USD; not positive for none
}

// Compare compares a deployment with a ranking in which the deployed sizes are among
// the offers. No finding means that nothing should be changed, apart from the sizes in
// unknown, whose prices could not be found out.
func Compare(d Deployed, r Ranking) (found []Finding, unknown []string) {
	var cheapest *Choice
	for _, size := range d.Sizes {
		c, reason := r.find(size, d.Region)
		switch {
		case c == nil && reason == priceUnknown:
			unknown = append(unknown, size)
			continue
		case c == nil:
			found = append(found, Finding{Size: size, Text: "cannot be used: " + reason})
			continue
		}
		if cheapest == nil || r.Key(*c) < r.Key(*cheapest) {
			cheapest = c
		}
		now := c.SpotUSD
		if now == 0 {
			now = c.Price
		}
		if d.MaxPrice > 0 && now > (1-tight)*d.MaxPrice {
			found = append(found, Finding{Size: size, Text: fmt.Sprintf("costs %s USD, close to the maximum price of %s: a small rise evicts "+
				"all its VMs", prices.Amount(now), prices.Amount(d.MaxPrice))})
		}
	}
	if len(r.Choices) > 0 && (cheapest != nil || len(unknown) == 0) {
		found = append(found, d.better(r, cheapest)...)
	}
	return found, unknown
}

// better returns that the best choice is to be used in place of the cheapest size of the
// deployment, or nothing; cheapest is nil where none can be used.
func (d Deployed) better(r Ranking, cheapest *Choice) []Finding {
	best := r.Choices[0]
	region := best.Region
	if region == d.Region {
		region = ""
	}
	switch {
	case cheapest == nil && region != "":
		return []Finding{{Region: region, Text: fmt.Sprintf("%s in %s can be used", best.Size, region)}}
	case cheapest != nil && r.Key(best) < (1-better)*r.Key(*cheapest):
		return []Finding{{Region: region, Text: fmt.Sprintf("%s in %s is %.0f %% cheaper for a useful hour than %s", best.Size,
			best.Region, 100*(1-r.Key(best)/r.Key(*cheapest)), cheapest.Size)}}
	}
	return nil
}

// find returns the choice of a size in a region, or why there is none.
func (r Ranking) find(size, region string) (*Choice, string) {
	i := slices.IndexFunc(r.Choices, func(c Choice) bool { return strings.EqualFold(c.Size, size) && c.Region == region })
	if i >= 0 {
		return &r.Choices[i], ""
	}
	for _, e := range r.Excluded {
		if strings.EqualFold(e.Size, size) && e.Region == region {
			return nil, e.Reason
		}
	}
	return nil, "nothing is known about it in " + region
}
