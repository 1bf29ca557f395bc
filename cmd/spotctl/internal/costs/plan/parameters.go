package plan

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
)

// mostMixed is how many sizes a scale set mixes.
const mostMixed = 5

// Mix returns the best choice and the choices that a scale set can mix with it: in its
// region, with its cores, architecture, disk interface and kind of local disk. Sizes with
// unknown properties are not mixed.
func (r Ranking) Mix() []Choice {
	if len(r.Choices) == 0 {
		return nil
	}
	best := r.Choices[0]
	mix := []Choice{best}
	for _, c := range r.Choices[1:] {
		a, b := best.Machine, c.Machine
		if a == nil || b == nil || c.Region != best.Region || len(mix) == mostMixed {
			continue
		}
		if a.Cores == b.Cores && a.Architecture == b.Architecture && a.Disks == b.Disks && a.LocalDisk == b.LocalDisk {
			mix = append(mix, c)
		}
	}
	return mix
}

// Parameters returns a parameter file for infra/bicep/main.bicep with the best choice, the
// sizes that can be mixed with it, and the eviction rate that its workers start from.
func (r Ranking) Parameters(o Options) string {
	mix := r.Mix()
	if len(mix) == 0 {
		return ""
	}
	var sizes strings.Builder
	rate := 0.0
	for _, c := range mix {
		fmt.Fprintf(&sizes, "  '%s'\n", c.Size)
		rate = max(rate, c.Rate)
	}
	maximum := "-1"
	if o.MaxPrice > 0 {
		maximum = prices.Amount(o.MaxPrice)
	}
	vms := max(o.VMs, 1)
	remark := ""
	if len(mix) > 1 {
		remark = mixedRemark
	}
	return fmt.Sprintf(parameterFile, mix[0].Region, remark, sizes.String(), maximum, percentUp(rate), vms)
}

// mixedRemark stands before several sizes. A ranking does not know the processors.
const mixedRemark = `// A program that is frozen (snapshot of its kind) continues only on the same processor: for such
// jobs keep sizes with one processor. The others would leave the jobs waiting, and after a day they
// are dead-lettered.
`

// percentUp is a rate in whole percent, rounded up, within what workers accept.
func percentUp(rate float64) int { return min(int(math.Ceil(100*rate-1e-9)), 100) }

const parameterFile = `// Made by spotctl plan. Deploy it from infra/bicep:
// LOCATION=%s PARAMETERS=infra/bicep/plan.bicepparam make deploy

using 'main.bicep'

param prefix = 'spotworker'
param operatorId = readEnvironmentVariable('OPERATOR_ID', '')
param sshPublicKey = readEnvironmentVariable('SSH_PUBLIC_KEY', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

param operatorAddresses = empty(readEnvironmentVariable('OPERATOR_ADDRESSES', ''))
  ? []
  : split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')

%sparam vmSizes = [
%s]
param maxPrice = '%s'

// Evictions to expect, in percent an hour: the upper end of what Azure publishes.
param workerSettings = { SPOTWORKER_EVICTION_RATE: '%d' }

param minInstances = 1
param maxInstances = %d
param capacity = int(readEnvironmentVariable('CAPACITY', '1'))
`

// Deployed is the deployment that a parameter file describes.
type Deployed struct {
	Sizes    []string
	Region   string  // empty if not known
	MaxPrice float64 // USD; not positive for none
	Rate     float64 // evictions per hour that workers start from; 0 if not set
}

var (
	sizesList     = regexp.MustCompile(`(?s)\bparam\s+vmSizes\s*=\s*\[(.*?)\]`)
	singleSize    = regexp.MustCompile(`\bparam\s+vmSize\s*=\s*'([^']*)'`)
	quotedText    = regexp.MustCompile(`'([^']*)'`)
	maxPriceValue = regexp.MustCompile(`\bparam\s+(?:maxPrice|maxPricePerVM)\s*=\s*'?(-?[0-9.]+)'?`)
	rateValue     = regexp.MustCompile(`\bSPOTWORKER_EVICTION_RATE\s*:\s*'([0-9.]+)'`)
	locationValue = regexp.MustCompile(`\bLOCATION=([a-z0-9]+)|\bparam\s+location\s*=\s*'([a-z0-9]+)'`)
	comment       = regexp.MustCompile(`(?m)//.*$`)
)

// ParseParameters reads a parameter file. Values that are expressions are not evaluated.
func ParseParameters(text string) (Deployed, error) {
	var d Deployed
	if found := locationValue.FindStringSubmatch(text); found != nil { // also in a comment
		d.Region = cmp.Or(found[1], found[2])
	}
	text = comment.ReplaceAllString(text, "")
	if found := sizesList.FindStringSubmatch(text); found != nil {
		for _, size := range quotedText.FindAllStringSubmatch(found[1], -1) {
			d.Sizes = append(d.Sizes, size[1])
		}
	} else if found := singleSize.FindStringSubmatch(text); found != nil {
		d.Sizes = []string{found[1]}
	}
	if len(d.Sizes) == 0 {
		return d, fmt.Errorf("no param vmSizes = ['…'] is in it: give the sizes as arguments instead")
	}
	if found := maxPriceValue.FindStringSubmatch(text); found != nil {
		price, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return d, fmt.Errorf("its maxPrice %q is not a number", found[1])
		}
		d.MaxPrice = price
	}
	if found := rateValue.FindStringSubmatch(text); found != nil {
		rate, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return d, fmt.Errorf("its SPOTWORKER_EVICTION_RATE %q is not a number", found[1])
		}
		d.Rate = rate / 100
	}
	return d, nil
}
