package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// signsIn are types whose resources act by an identity that they are given.
var signsIn = []string{
	"Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Compute/virtualMachines", "Microsoft.AzureFleet/fleets",
	"Microsoft.Compute/galleries", "Microsoft.Authorization/policyAssignments",
}

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

// checkIdentities: each identity has a name of its own, or two resources would be one
// identity with the roles of both. Each VM, gallery and assignment has exactly the identity
// that it is given.
func checkIdentities(d deployment, tell report) {
	owner := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(d)) {
		for _, r := range d[path].Resources {
			if r.Existing {
				continue
			}
			if r.Type == identityType {
				name := text(at(r.Body, "name"))
				if other, taken := owner[name]; taken {
					tell(path, r.Line, "%s has the name %s of %s: they would be one identity, with the roles of both", r.Symbol, name, other)
				}
				owner[name] = r.Symbol
			}
			if slices.Contains(signsIn, r.Type) {
				checkIdentity(path, r, tell)
			}
		}
	}
}

func checkIdentity(name string, r resource, tell report) {
	id := "'${identityId}'"
	if r.Type == "Microsoft.Authorization/policyAssignments" {
		id = "'${identity.id}'"
	}
	want := map[string]any{"type": "UserAssigned", "userAssignedIdentities": map[string]any{id: map[string]any{}}}
	if diff := cmp.Diff(any(want), at(r.Body, "identity")); diff != "" {
		tell(name, r.Line, "%s has not exactly the identity that it is given (-want +got):\n%s", r.Symbol, diff)
	}
}

// checkGuids: the name of an assignment comes from its own scope, principal and role. With
// another scope's id two assignments have one name, which Azure refuses. A second deployment
// finds the assignments of the first.
func checkGuids(d deployment, tell report) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		if strings.Contains(d[path].source, "newGuid(") || strings.Contains(d[path].source, "utcNow(") {
			tell(path, 0, "a name or setting changes with every deployment")
		}
		for _, r := range d[path].Resources {
			name := text(at(r.Body, "name"))
			if r.Type != assignmentType || r.Existing {
				continue
			}
			scope := r.Scope
			if scope == "" {
				scope = "resourceGroup()"
			}
			role := text(at(r.Body, "properties", "roleDefinitionId"))
			if m := roleID.FindStringSubmatch(role); m != nil {
				role = m[1]
			}
			arguments := strings.Split(strings.TrimSuffix(strings.TrimPrefix(name, "guid("), ")"), ", ")
			ofRole := func(argument string) bool { return argument == role || strings.HasPrefix(role, argument+" == ") }
			if len(arguments) != 3 || arguments[0] != scope+".id" || arguments[1] != text(at(r.Body, "properties", "principalId")) ||
				!ofRole(arguments[2]) {
				tell(path, r.Line, "name of %s is %s, want guid(%s.id, principalId, %s)", r.Symbol, name, scope, role)
			}
		}
	}
}
