package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// bound is the range of a parameter of a file, or of a property of a type: of a number, or
// of the length of a text or list. Without a file it is about the entries.
type bound struct {
	file, name  string
	least, most string // empty for no bound
	source      string
}

// bounds have every number of the deployment, and every text and list with a range. Where a
// value without bounds is refused late, Azure would refuse it after it made the rest.
var bounds = []bound{
	{"", "prefix", "3", "30", namesPage + ": the longest name that begins with it"},
	{"", "accountName", "3", "24", namesPage},
	{"", "applicationVersion", "5", "", galleryPage + ": three numbers"},
	{"", "vmSizes", "1", "5", mixPage},
	{"fleet.bicep", "vmSizes", "3", "15", ours + ": fewer find less capacity; " + fleetPage},
	{"", "baseRegularCount", "0", "", "virtual-machine-scale-sets/spot-priority-mix"},
	{"", "regularPercentage", "0", "100", "virtual-machine-scale-sets/spot-priority-mix"},
	{"", "capacity", "0", "1000", flexiblePage},
	{"", "minInstances", "1", "1000", ours + ": an empty set would wait for autoscale's first look"},
	{"", "maxInstances", "1", "1000", flexiblePage},
	{"", "onDemandMinInstances", "0", "1000", flexiblePage},
	{"", "onDemandMaxInstances", "1", "1000", flexiblePage + ": moved jobs need one VM"},
	{"", "onDemandCapacity", "0", "1000", flexiblePage},
	{"", "jobsPerInstance", "2", "", autoscaleDesign + ": VMs are removed at a smaller depth"},
	{"", "times", "", "9", autoscaleTable + ": 20 profiles, two for each time"},
	{"", "spotCapacity", "1", "10000", fleetPage},
	{"", "regularCapacity", "0", "10000", fleetPage},
	{"", "moveAfter", "1", "", "internal/workercmd"},
	{"", "changeover", "2", "16", ours + ": a duration of Go"},
	{"", "healthPort", "1024", "65535", ours + ": the worker is no root"},
	{"", "evictionRate", "0", "100", ours + ": percent an hour"},
	{"", "queueShards", "1", "16", "internal/queue"},
	{"", "queueShardsTaken", "1", "16", "internal/queue"},
	{"", "recordedChosenIdsOn", "0", "16", "internal/queue"},
	{"", "logRetentionDays", "4", "730", workspacePage},
	{"", "logDailyQuotaGb", "", "", workspacePage + ": -1 is none"},

	{"modules/autoscale.bicep", "minInstances", "0", "", ours + ": on-demand VMs may be none"},
	{"modules/autoscale.bicep", "maxInstances", "1", "1000", flexiblePage},
	{"modules/autoscale.bicep", "jobsPerInstance", "2", "", autoscaleDesign},
	{"modules/autoscale.bicep", "times", "", "9", autoscaleTable},
	{"modules/fleet.bicep", "vmSizes", "3", "", ours},
	{"modules/monitoring.bicep", "retentionDays", "4", "730", workspacePage},
	{"modules/regular-scale-set.bicep", "capacity", "0", "1000", flexiblePage},
	{"modules/spot-scale-set.bicep", "capacity", "0", "1000", flexiblePage},
	{"modules/spot-scale-set.bicep", "vmSizes", "1", "5", mixPage},
	{"modules/spot-scale-set.bicep", "baseRegularCount", "0", "", "virtual-machine-scale-sets/spot-priority-mix"},
	{"modules/spot-scale-set.bicep", "regularPercentage", "0", "100", "virtual-machine-scale-sets/spot-priority-mix"},
	{"modules/storage.bicep", "accountName", "3", "24", namesPage},

	{"modules/types.bicep", "dataContainerType.name", "3", "63", namesPage},
	{"modules/types.bicep", "moreAccountsType.names", "1", "15", "internal/queue: 16 with the first"},
	{"modules/types.bicep", "moreAccountsType.putOn", "1", "16", "internal/queue"},
	{"modules/types.bicep", "moreAccountsType.chosenIdsOn", "1", "16", "internal/queue"},
	{"modules/types.bicep", "retentionType.records", "8", "", ours + ": a message lives for 7 days"},
	{"modules/types.bicep", "retentionType.payloads", "1", "", storagePage},
	{"modules/types.bicep", "retentionType.workers", "1", "", storagePage},
	{"modules/types.bicep", "retentionType.outputs", "1", "", storagePage},
	{"modules/types.bicep", "weekTimeType.days", "1", "7", autoscaleTimes},
	{"modules/types.bicep", "weekTimeType.hour", "0", "23", autoscaleTimes},
	{"modules/types.bicep", "timeType.name", "1", "", autoscaleTimes},
	{"modules/types.bicep", "timeType.minInstances", "0", "1000", flexiblePage},
	{"modules/types.bicep", "timeType.maxInstances", "0", "1000", flexiblePage},
	{"modules/types.bicep", "packageCommandsType.install", "", "4096", galleryPage},
	{"modules/types.bicep", "packageCommandsType.update", "", "4096", galleryPage},
	{"modules/types.bicep", "packageCommandsType.remove", "", "4096", galleryPage},
}

// A bound, and the parameter, type or property that may have one.
var (
	boundForm    = regexp.MustCompile(`^ *@(min|max)(Length|Value)\((\d+)\)$`)
	beforeForm   = regexp.MustCompile(`^ *(@.*|//.*)?$`)
	paramForm    = regexp.MustCompile(`^param (\w+) (.*)$`)
	typeForm     = regexp.MustCompile(`^type (\w+) = \{$`)
	propertyForm = regexp.MustCompile(`^  (\w+)\??: (.*)$`)
)

// boundOf returns the listed range of a parameter or property of a file.
func boundOf(file, name string) (b bound, listed bool) {
	for _, b := range bounds {
		if b.name == name && b.file == file {
			return b, true
		}
	}
	if slices.Contains(entries, file) {
		return boundOf("", name)
	}
	return bound{}, false
}

// checkBounds: each number of an entry, and each other value with a range, has the listed
// range.
func checkBounds(d deployment, tell report) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		if strings.HasSuffix(path, ".bicepparam") {
			continue
		}
		got, kinds, inType := map[string]string{}, "", ""
		for n, line := range strings.Split(d[path].source, "\n") {
			if m := boundForm.FindStringSubmatch(line); m != nil {
				got[m[1]], kinds = m[3], kinds+m[2]
			}
			if beforeForm.MatchString(line) {
				continue
			}
			name, kind := "", ""
			if m := typeForm.FindStringSubmatch(line); m != nil {
				inType = m[1]
			} else if m := paramForm.FindStringSubmatch(line); m != nil {
				name, kind, inType = m[1], m[2], ""
			} else if m := propertyForm.FindStringSubmatch(line); m != nil && inType != "" {
				name, kind = inType+"."+m[1], m[2]
			}
			want, listed := boundOf(path, name)
			isNumber := strings.HasPrefix(kind, "int")
			switch wrong := map[bool]string{true: "Length", false: "Value"}[isNumber]; {
			case name == "":
			case !listed && (len(got) > 0 || isNumber && slices.Contains(entries, path)):
				tell(path, n+1, "no rule knows the bounds of %s: list them", name)
			case listed && (got["min"] != want.least || got["max"] != want.most):
				tell(path, n+1, "%s is from %q to %q, want %q to %q (%s)", name, got["min"], got["max"], want.least, want.most, want.source)
			case strings.Contains(kinds, wrong):
				tell(path, n+1, "%s is %s, and a bound is of its %s", name, kind, wrong)
			}
			got, kinds = map[string]string{}, ""
		}
	}
}

// choices are the values that the exported types of texts allow.
var choices = map[string]string{
	"dataContainerType.access": "'Read' | 'ReadWrite'", "operatingSystemType": "'Linux' | 'Windows'",
	"stageType": "'Foundation' | 'Application' | 'Workers'", "configurationPlaceType": "'Blob' | 'Package'",
	"outboundType": "'NatGateway' | 'StorageOnly'", "principalKindType": "'User' | 'Group' | 'ServicePrincipal'",
	"weekTimeType.days": "('Monday' | 'Tuesday' | 'Wednesday' | 'Thursday' | 'Friday' | 'Saturday' | 'Sunday')[]",
}

var choiceForm = regexp.MustCompile(`^(?:type (\w+) = |  (\w+)\??: )(\(?'.*)$`)

// checkChoices: each text with a fixed set of values has the listed ones.
func checkChoices(d deployment, tell report) {
	const path = "modules/types.bicep"
	seen, inType := map[string]bool{}, ""
	for n, line := range strings.Split(d[path].source, "\n") {
		if m := typeForm.FindStringSubmatch(line); m != nil {
			inType = m[1] + "."
		} else if strings.HasPrefix(line, "}") {
			inType = ""
		}
		m := choiceForm.FindStringSubmatch(line)
		if m == nil || m[1] == "" && inType == "" {
			continue
		}
		name := m[1]
		if name == "" {
			name = inType + m[2]
		}
		seen[name] = true
		if m[3] != choices[name] {
			tell(path, n+1, "%s is %s, want %s", name, m[3], choices[name])
		}
	}
	for name := range choices {
		if !seen[name] {
			tell(path, 0, "there is no %s", name)
		}
	}
}
