package policy

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// needed are properties without which a resource is accepted and is something else.
var needed = map[string][][]string{
	assignmentType: {{"properties", "principalId"}, {"properties", "principalType"}, {"properties", "roleDefinitionId"}},
	"Microsoft.Compute/virtualMachineScaleSets": {
		{"sku"}, {"identity"}, {"zones"}, {"properties"},
	},
	"Microsoft.AzureFleet/fleets": {
		{"zones"}, {"properties", "regularPriorityProfile", "capacity"}, {"properties", "regularPriorityProfile", "minCapacity"},
		{"properties", "regularPriorityProfile", "allocationStrategy"}, {"properties", "spotPriorityProfile", "capacity"},
		{"properties", "spotPriorityProfile", "allocationStrategy"}, {"properties", "vmSizesProfile"},
	},
	"Microsoft.Compute/virtualMachines/extensions": {{"parent"}, {"name"}, {"properties"}},
	"Microsoft.Compute/galleries/applications/versions": {
		{"properties", "safetyProfile", "allowDeletionOfReplicatedLocations"}, {"properties", "publishingProfile", "replicaCount"},
	},
	"Microsoft.Insights/scheduledQueryRules": {{"kind"}, {"properties", "autoMitigate"}, {"properties", "scopes"}},
	"Microsoft.Insights/activityLogAlerts":   {{"properties", "scopes"}},
	"Microsoft.Insights/diagnosticSettings":  {{"scope"}},
	"Microsoft.OperationalInsights/workspaces/tables": {
		{"properties", "plan"}, {"properties", "retentionInDays"},
	},
	"Microsoft.Insights/dataCollectionRules": {{"properties", "dataCollectionEndpointId"}, {"properties", "dataFlows"}},
	"Microsoft.Insights/autoscalesettings":   {{"properties", "name"}, {"properties", "enabled"}, {"properties", "targetResourceUri"}},
}

// withoutTags are types that take no tags, and atItsParent types that take no location.
var (
	withoutTags = []string{
		assignmentType, "Microsoft.Authorization/policyAssignments", "Microsoft.OperationalInsights/workspaces/tables",
		"Microsoft.Insights/diagnosticSettings", "Microsoft.Storage/storageAccounts/queueServices",
		"Microsoft.Storage/storageAccounts/queueServices/queues", "Microsoft.Storage/storageAccounts/blobServices",
		"Microsoft.Storage/storageAccounts/blobServices/containers", "Microsoft.Storage/storageAccounts/managementPolicies",
	}
	atItsParent = slices.DeleteFunc(slices.Clone(withoutTags), func(t string) bool { return t == "Microsoft.Authorization/policyAssignments" })
)

// checkProperties: no resource lacks a property that it takes without, and each has the
// tags and the region of the deployment.
func checkProperties(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		for _, r := range d[name].Resources {
			if r.Existing {
				continue
			}
			for _, key := range needed[r.Type] {
				v := at(r.Body, key...)
				if r.Symbol == "scaleSet" && len(key) == 1 && key[0] == "properties" || v != nil {
					continue
				}
				tell(name, r.Line, "%s has no %s", r.Symbol, strings.Join(key, "."))
			}
			if !slices.Contains(withoutTags, r.Type) && text(at(r.Body, "tags")) != "tags" {
				tell(name, r.Line, "tags of %s are %q, want the deployment's: costs are counted by them", r.Symbol, text(at(r.Body, "tags")))
			}
			if location := text(at(r.Body, "location")); !slices.Contains(atItsParent, r.Type) && location == "" {
				tell(name, r.Line, "%s has no location", r.Symbol)
			}
		}
		// Functions and lists of resources, whose lines must be there as often as this.
		for setting, want := range lines[name] {
			if got := len(d[name].settings(setting)); got != want {
				tell(name, 0, "%s is set %d times, want %d", setting, got, want)
			}
		}
	}
}

// lines are how often a file sets a property, where each time is another object.
var lines = map[string]map[string]int{
	"modules/vm.bicep": {
		"computerNamePrefix": 2, "adminUsername": 2, "provisionVMAgent": 2, "publisher": 2, "type": 2, "typeHandlerVersion": 2,
		"autoUpgradeMinorVersion": 2, "primary": 2, "deleteOption": 2, "name": 4, "caching": 1, "createOption": 1,
	},
	"modules/single-vm.bicep": {"primary": 2, "deleteOption": 2, "provisionVMAgent": 1, "caching": 1, "subnet": 1,
		"privateIPAllocationMethod": 1},
	"modules/autoscale.bicep": {"type": 2, "value": 2, "cooldown": 2, "minimum": 2, "maximum": 2, "default": 2,
		"frequency": 2, "timeZone": 2, "rules": 2},
	"modules/monitoring.bicep": {"kind": 2, "plan": 1, "retentionInDays": 2},
	"modules/spot-scale-set.bicep": {
		"enabled": 2, "repairAction": 1, "gracePeriod": 1, "priority": 1, "bootDiagnostics": 1, "sku": 2,
	},
	"modules/regular-scale-set.bicep": {"enabled": 1, "enable": 1, "priority": 1, "bootDiagnostics": 1},
}

// variablesFrom are variables on which conditions and names depend, by file.
var variablesFrom = map[string]map[string]string{
	"main.bicep": {
		"jobQueues": "max(queueShards, queueShardsTaken) * (moreAccounts.?putOn ?? 1)",
		"scales": "autoscale && evictionPolicy == 'Deallocate' ? fail('autoscale works with evictionPolicy Delete only: set autoscale to " +
			"false, and Azure starts evicted VMs again as capacity allows; or evictionPolicy to Delete') : autoscale",
		"windows": "operatingSystem == 'Windows' && length(adminPassword) < 12 ? fail('Windows needs adminPassword, of 12 to 123 characters " +
			"of three kinds: set ADMIN_PASSWORD to a random one') : operatingSystem == 'Windows'",
	},
	"modules/foundation.bicep": {
		"collects": "monitoring && outbound == 'NatGateway'", "pushesMetrics": "!empty(metricsWorkspaceId) && outbound == 'NatGateway'",
		"ownsAccount":   "toLower(accountGroup) == toLower(resourceGroup().name)",
		"packageSuffix": "operatingSystem == 'Windows' ? '.zip' : '.tar.gz'", "packageName": "'spotworker${packageSuffix}'",
		"applications": "onDemand ? [spotApplication, onDemandApplication] : [spotApplication]",
	},
	"modules/monitoring.bicep":      {"stream": "'Custom-SpotworkerLog'"},
	"modules/spot-scale-set.bicep":  {"mixed": "baseRegularCount > 0 || regularPercentage > 0"},
	"modules/autoscale.bicep":       {"fromNone": "minInstances == 0"},
	"modules/log-association.bicep": {"resourceKind": "'Microsoft.Insights/dataCollectionRules'"},
}

// wordsIn are words on which no rule about resources looks, by file.
var wordsIn = map[string][]string{
	"modules/foundation.bicep": {
		"packages: '${prefix}-packages'\n", "i => i == 0 ? '${prefix}-jobs' : '${prefix}-jobs-${i}')",
		"jobs: map(range(0, max(queueShards, queueShardsTaken)),",
		"var spotApplication = {\n  name: prefix\n  package: packageName\n  configuration: 'worker.env'\n",
		"var onDemandApplication = {\n  name: '${prefix}-ondemand'\n", "  configuration: 'worker-ondemand.env'\n",
		"filter(dataContainers, c => c.access == 'Read'),",
		"string[] = onDemand\n", "= collects ? !empty(logAssociation!.outputs.assignmentId) : false",
	},
	"modules/monitoring.bicep": {
		"windowsEventLogs: operatingSystem == 'Windows'\n", "dataFlows: concat(operatingSystem == 'Windows'\n",
		"plan: 'Analytics'", "networkAcls: { publicNetworkAccess: 'Enabled' }",
		"          name: 'worker'\n",
		"              name: 'service'\n", "          name: 'workspace'\n",
		`transformKql: 'source | extend TimeGenerated = iif(isnotnull([\'time\']), [\'time\'], TimeGenerated) | project-away [\'time\']'`,
	},
	"modules/no-workers-alert.bicep": {
		"ago(15m) and msg in (\"queue read\", \"job started\", \"job committed\") | summarize count());",
		"where msg == \"queue read\" and queue !endswith \"-poison\" | summarize arg_max(TimeGenerated, messages) by queue | " +
			"where messages > 0 and alive == 0'", "autoMitigate: true",
	},
	"modules/gallery.bicep": {"    parent: gallery\n    name: name\n"},
	"modules/storage.bicep": {"[names.workers, names.control, names.packages] : [],\n    map(dataContainers, c => c.name)\n"},
	"modules/network.bicep": {
		"      {\n        name: 'workers'\n", "existing = { name: 'workers' }", "name: 'DenyAllInbound'", "destinationAddressPrefix: '*'\n",
	},
	"modules/eviction-alert.bicep":  {"scopes: [resourceGroup().id]"},
	"modules/log-association.bicep": {"policyDefinitionId: tenantResourceId('Microsoft.Authorization/policyDefinitions', definition)"},
	"modules/fleet.bicep": {
		"capacity: regularCapacity\n      minCapacity: regularCapacity\n      allocationStrategy: 'LowestPrice'",
	},
	"modules/autoscale.bicep":      {"string(max(1, maxInstances / 10))", "cooldown: fromNone ? 'PT15M' : 'PT5M'"},
	"modules/spot-scale-set.bicep": {"bootDiagnostics: { enabled: true }", "sku: sku\n"},
	"modules/single-vm.bicep": {"bootDiagnostics: { enabled: true }", "provisionVMAgent: true", "name: 'workers'\n",
		"name: 'AzureMonitorLinuxAgent'"},
	"modules/vm.bicep": {"caching: 'ReadWrite'", "name: 'ApplicationHealth'\n",
		"name: system == 'Windows' ? 'AzureMonitorWindowsAgent' : 'AzureMonitorLinuxAgent'"},
	"modules/regular-scale-set.bicep":   {"bootDiagnostics: { enabled: true }"},
	"modules/application-version.bicep": {"allowDeletionOfReplicatedLocations: true"},
	"modules/storage-log.bicep":         {"scope: account::blobService", "scope: account::queueService"},
}

// checkVariables: conditions and names come from these expressions.
func checkVariables(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(variablesFrom)) {
		for variable, want := range variablesFrom[name] {
			if got := text(named(d[name].Variables, variable)); got != want {
				tell(name, 0, "%s is %s, want %s", variable, got, want)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wordsIn)) {
		needWords(d, name, tell, wordsIn[name]...)
	}
	if got := strings.Count(d["modules/vm.bicep"].source, "provisionVMAgent: true"); got != 2 {
		tell("modules/vm.bicep", 0, "%d systems have a VM agent, want both: it installs the package", got)
	}
}

// inAccountGroup are the modules that work on the storage account, which may be in another
// region's resource group.
var inAccountGroup = []string{"worker-roles.bicep", "gallery-roles.bicep"}

// checkHandedAll: a module gets every parameter that its file and the module's both have.
// Azure would take the default, or null, in silence. What works on the storage account is
// deployed to the account's group.
func checkHandedAll(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		f := d[name]
		for _, m := range f.Modules {
			child := d[path.Join(path.Dir(name), m.Path)]
			given, _ := at(m.Body, "params").(map[string]any)
			for _, p := range child.Params {
				_, has := given[p.Name]
				if _, listed := otherwise[name+" "+m.Symbol][p.Name]; !has && (f.takes(p.Name) || listed) {
					tell(name, m.Line, "module %s does not get %s", m.Symbol, p.Name)
				}
			}
			if scope := text(at(m.Body, "scope")); slices.Contains(inAccountGroup, m.Path) != (scope == "resourceGroup(accountGroup)") {
				tell(name, m.Line, "module %s is deployed to %q", m.Symbol, scope)
			}
		}
		for _, r := range f.Resources {
			if r.Type == "Microsoft.Storage/storageAccounts" && r.Existing && f.takes("accountGroup") &&
				r.Scope != "resourceGroup(accountGroup)" {
				tell(name, r.Line, "%s is looked for in the deployment's group, want accountGroup", r.Symbol)
			}
		}
	}
}
