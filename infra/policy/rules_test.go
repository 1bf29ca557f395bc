package policy

import (
	"fmt"
	"slices"
)

// finding is one place that breaks a rule.
type finding struct {
	rule, path string
	line       int
	text       string
}

func (f finding) String() string {
	return fmt.Sprintf("infra/bicep/%s:%d: %s: %s", f.path, f.line, f.rule, f.text)
}

// report receives what breaks a rule.
type report func(path string, line int, format string, arguments ...any)

// rules are the policy. A finding has the name of its rule.
var rules = []struct {
	name  string
	check func(deployment, report)
}{
	{"eviction", checkEviction},
	{"storage", checkStorage},
	{"storage access", checkStorageAccess},
	{"secrets", checkSecrets},
	{"secure values", checkSecure},
	{"capacity", checkCapacity},
	{"indexes", checkIndexes},
	{"windows", checkWindows},
	{"roles", checkRoles},
	{"roles first", checkRolesFirst},
	{"names", checkNames},
	{"assignment names", checkAssignmentNames},
	{"resource names", checkResourceNames},
	{"locations", checkLocations},
	{"wired", checkWired},
	{"described", checkDescribed},
	{"health", checkHealth},
	{"network", checkNetwork},
	{"scaling", checkScaling},
	{"retention", checkRetention},
	{"alerts", checkAlerts},
	{"limits", checkLimits},
	{"transformations", checkTransformations},
	{"versions", checkVersions},
	{"settings", checkSettings},
	{"handed down", checkHandedDown},
	{"resources", checkResources},
	{"alert times", checkAlertTimes},
	{"directions", checkDirections},
	{"times", checkTimes},
	{"name lengths", checkNameLengths},
	{"mixes", checkMixes},
	{"images", checkImages},
	{"identities", checkIdentities},
	{"guids", checkGuids},
	{"products", checkProducts},
	{"numbers", checkNumbers},
	{"metrics push", checkMetricsPush},
	{"properties", checkProperties},
	{"variables", checkVariables},
	{"handed all", checkHandedAll},
	{"parameters", checkParameters},
	{"defaults", checkDefaults},
	{"made", checkMade},
	{"bounds", checkBounds},
	{"types", checkTypes},
	{"choices", checkChoices},
}

// judge returns what breaks the rules, in an order of its own.
func judge(d deployment) []finding {
	var found []finding
	for _, rule := range rules {
		rule.check(d, func(path string, line int, format string, arguments ...any) {
			found = append(found, finding{rule.name, path, line, fmt.Sprintf(format, arguments...)})
		})
	}
	slices.SortFunc(found, func(a, b finding) int {
		return slices.Compare([]string{a.path, a.rule, a.text}, []string{b.path, b.rule, b.text})
	})
	return found
}
