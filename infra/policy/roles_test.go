package policy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// wantGrants lists the role assignments: file, queue or container, role, condition
// or loop. A queue's message processor may not renew messages, so workers that take
// jobs are its contributors.
var wantGrants = []string{
	// Microsoft asks for Contributor, and describes no writing.
	"gallery-roles: container containerName: roles.blobDataContributor",

	"worker-roles: queue concat(names.jobs, [names.first]): roles.queueDataContributor for range(0, 1 + length(names.jobs))",
	"worker-roles: queue names.onDemand: roles.queueDataContributor if takesOnDemand",
	"worker-roles: queue names.onDemand: role for takesOnDemand ? [] : [roles.queueDataMessageSender, roles.queueDataReader]",
	"worker-roles: queue names.poison: role for [roles.queueDataMessageSender, roles.queueDataReader]",
	"worker-roles: container [names.records, names.payloads, names.outputs, names.workers]: " +
		"roles.blobDataContributor for range(0, 4)",
	"worker-roles: container dataContainers: c.access == 'ReadWrite' ? roles.blobDataContributor : roles.blobDataReader for dataContainers",

	"worker-roles: container names.control: roles.blobDataReader",
	"operator-roles: queue concat(names.jobs, [names.first, names.onDemand, names.poison]): " +
		"roles.queueDataContributor for range(0, 3 + length(names.jobs))",
	"operator-roles: container concat([names.records, names.payloads, names.outputs, names.control, names.packages], " +
		"map(dataContainers, c => c.name)): roles.blobDataContributor for range(0, 5 + length(dataContainers))",
	"operator-roles: container names.workers: roles.blobDataReader",

	// To push metrics through that one rule.
	"metrics: all of Microsoft.Insights/dataCollectionRules: roles.monitoringMetricsPublisher for principalIds",

	// To publish depths as custom metrics of the scale set, and nothing else there.
	"autoscale: all of Microsoft.Compute/virtualMachineScaleSets: roles.monitoringMetricsPublisher for publisherIds",

	// The policy that associates VMs asks for these; it knows no narrower scope.
	"policy-roles: resource group: role for roleIds",
}

// wantRoleIDs are ids of built-in roles, the same in every tenant.
var wantRoleIDs = map[string]value{
	"blobDataContributor":        "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
	"blobDataReader":             "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
	"queueDataContributor":       "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
	"queueDataMessageSender":     "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a",
	"queueDataReader":            "19e7f393-937e-4f77-808e-94535e297925",
	"monitoringContributor":      "749f88d5-cbae-40b8-bcfc-e573ddc772fa",
	"monitoringMetricsPublisher": "3913510d-42f4-4e42-8a64-420c390055eb",
	"logAnalyticsContributor":    "92aaf0da-9dab-42b6-94a3-d43ce8d29293",
}

const assignmentType = "Microsoft.Authorization/roleAssignments"

var (
	roleID     = regexp.MustCompile(`^subscriptionResourceId\( ?'Microsoft.Authorization/roleDefinitions', (.*?) ?\)$`)
	scopeIndex = regexp.MustCompile(`\[i\]$`)
)

// checkRoles: exactly these roles, each on one queue or container.
func checkRoles(d deployment, tell report) {
	var grants []string
	for path, f := range d {
		for _, r := range f.Resources {
			if r.Type == assignmentType && !r.Existing {
				grants = append(grants, grant(path, f, r))
			}
		}
	}
	want := slices.Sorted(slices.Values(wantGrants))
	slices.Sort(grants)
	if diff := cmp.Diff(want, grants); diff != "" {
		tell("modules", 0, "who may do what (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantRoleIDs, named(d["modules/types.bicep"].Variables, "roles")); diff != "" {
		tell("modules/types.bicep", 0, "role ids (-want +got):\n%s", diff)
	}
}

// grant describes a role assignment in a line.
func grant(path string, f *file, r resource) string {
	role := text(at(r.Body, "properties", "roleDefinitionId"))
	if m := roleID.FindStringSubmatch(role); m != nil {
		role = m[1]
	}
	name := strings.TrimSuffix(strings.TrimPrefix(path, "modules/"), ".bicep")
	said := name + ": " + scopeOf(f, r.Scope) + ": " + role
	if r.Condition != "" {
		said += " if " + r.Condition
	}
	if r.Loop != "" {
		said += " for " + strings.Join(strings.Fields(r.Loop), " ")
	}
	return said
}

// scopeOf describes a scope: the queue or container, by its name.
func scopeOf(f *file, scope string) string {
	if scope == "" {
		return "resource group"
	}
	parts := strings.Split(scopeIndex.ReplaceAllString(scope, ""), "::")
	symbol := parts[len(parts)-1]
	for _, r := range f.Resources {
		if r.Symbol != symbol {
			continue
		}
		kind := map[string]string{
			"Microsoft.Storage/storageAccounts/queueServices/queues":    "queue ",
			"Microsoft.Storage/storageAccounts/blobServices/containers": "container ",
		}[r.Type]
		if kind == "" {
			return "all of " + r.Type
		}
		if r.Loop != "" {
			return kind + strings.Join(strings.Fields(r.Loop), " ")
		}
		return kind + text(at(r.Body, "name"))
	}
	return "unknown " + scope
}
