package policy

import (
	"fmt"
	"slices"
	"testing"
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
	{"health", checkHealth},
	{"storage", checkStorage},
	{"retention", checkRetention},
	{"secrets", checkSecrets},
	{"secure values", checkSecure},
	{"capacity", checkCapacity},
	{"variables", checkVariables},
	{"windows", checkWindows},
	{"roles", checkRoles},
	{"identities", checkIdentities},
	{"guids", checkGuids},
	{"names", checkNames},
	{"name lengths", checkNameLengths},
	{"deployment names", checkDeploymentNames},
	{"bounds", checkBounds},
	{"locations", checkLocations},
	{"network", checkNetwork},
	{"limits", checkLimits},
	{"transformations", checkTransformations},
	{"versions", checkVersions},
	{"handed down", checkHandedDown},
	{"client ids", checkClientIDs},
	{"indexes", checkIndexes},
	{"alert times", checkAlertTimes},
	{"directions", checkDirections},
	{"mixes", checkMixes},
	{"images", checkImages},
	{"products", checkProducts},
	{"numbers", checkNumbers},
}

// TestDeployment holds the files to the rules.
func TestDeployment(t *testing.T) {
	var found []finding
	d := committed(t)
	for _, rule := range rules {
		rule.check(d, func(path string, line int, format string, arguments ...any) {
			found = append(found, finding{rule.name, path, line, fmt.Sprintf(format, arguments...)})
		})
	}
	slices.SortFunc(found, func(a, b finding) int {
		return slices.Compare([]string{a.path, a.rule, a.text}, []string{b.path, b.rule, b.text})
	})
	for _, f := range found {
		t.Error(f)
	}
}
