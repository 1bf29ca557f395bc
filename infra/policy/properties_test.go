package policy

import (
	"maps"
	"path"
	"regexp"
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
	"modules/spot-scale-set.bicep":  {"mixed": "baseRegularCount > 0 || regularPercentage > 0"},
	"modules/autoscale.bicep":       {"fromNone": "minInstances == 0"},
	"modules/log-association.bicep": {"resourceKind": "'Microsoft.Insights/dataCollectionRules'"},
}

// wordsIn are words on which no rule about resources looks, by file.
var wordsIn = map[string][]string{
	"modules/foundation.bicep": {
		"i => i == 0 ? '${prefix}-jobs' : '${prefix}-jobs-${i}')", "jobs: map(range(0, max(queueShards, queueShardsTaken)),",
		"configuration: 'worker.env'\n", "configuration: 'worker-ondemand.env'\n", "filter(dataContainers, c => c.access == 'Read'),",
		"string[] = onDemand\n", "= collects ? !empty(logAssociation!.outputs.assignmentId) : false",
	},
	"modules/monitoring.bicep": {
		"windowsEventLogs: operatingSystem == 'Windows'\n", "dataFlows: concat(operatingSystem == 'Windows'\n", "plan: 'Analytics'",
		`transformKql: 'source | extend TimeGenerated = iif(isnotnull([\'time\']), [\'time\'], TimeGenerated) | project-away [\'time\']'`,
	},
	"modules/no-workers-alert.bicep": {
		"ago(15m) and msg in (\"queue read\", \"job started\", \"job committed\") | summarize count());",
		"where msg == \"queue read\" and queue !endswith \"-poison\" | summarize arg_max(TimeGenerated, messages) by queue | " +
			"where messages > 0 and alive == 0'", "autoMitigate: true",
	},
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
	"modules/single-vm.bicep":      {"bootDiagnostics: { enabled: true }", "provisionVMAgent: true", "name: 'AzureMonitorLinuxAgent'"},
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
	for _, r := range d["modules/network.bicep"].Resources {
		want := map[string]string{"address": "outbound == 'NatGateway'", "gateway": "outbound == 'NatGateway'"}[r.Symbol]
		if r.Condition != want {
			tell("modules/network.bicep", r.Line, "%s is made if %q, want %q", r.Symbol, r.Condition, want)
		}
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

// variablesOfEnvironment are the variables that parameter files read, by parameter:
// tools/deploy.sh sets them, or docs/deploy.md says to.
var variablesOfEnvironment = map[string]string{
	"operatorId": "OPERATOR_ID", "sshPublicKey": "SSH_PUBLIC_KEY", "applicationVersion": "APPLICATION_VERSION",
	"operatorAddresses": "OPERATOR_ADDRESSES", "capacity": "CAPACITY", "onDemandCapacity": "ONDEMAND_CAPACITY",
	"adminPassword": "ADMIN_PASSWORD", "actionGroupIds": "ACTION_GROUP_ID", "accountName": "ACCOUNT_NAME", "accountGroup": "ACCOUNT_GROUP",
}

// wantDefaults are the defaults of the entries: what a deployment does that says nothing,
// and what it costs.
var wantDefaults = map[string]string{
	"maxPrice": "'-1'", "autoscale": "true", "monitoring": "true", "logStorage": "true", "onDemand": "false", "publishEvents": "false",
	"evictionRate": "0", "logRetentionDays": "30", "logDailyQuotaGb": "1", "maxInstances": "2", "onDemandMaxInstances": "2",
	"minInstances": "1", "regularPercentage": "0", "baseRegularCount": "0", "jobsPerInstance": "20", "moveAfter": "3",
	"changeover": "'10m'", "applicationVersion": "'1.0.0'", "adminUsername": "'azureuser'", "spotCapacity": "10", "regularCapacity": "1",
	"queueShards": "1", "onDemandVmSize": "vmSizes[0]", "onDemandMinInstances": "0", "diskType": "'StandardSSD_LRS'",
	"logFiles": "[/var/log/spotworker/*.log]", "recordedAccounts": "''", "healthPort": "8810",
}

// given are the values of our parameter files that documents promise or on which costs
// depend.
var given = map[string]map[string]string{
	"cheapest.bicepparam": {"outbound": "'StorageOnly'", "maxInstances": "2", "monitoring": "true", "diskType": "'Standard_LRS'"},
	"production.bicepparam": {"autoscale": "true", "onDemand": "true", "monitoring": "true", "outbound": "'NatGateway'", "maxPrice": "'-1'",
		"evictionPolicy": "'Delete'", "maxInstances": "60", "onDemandMaxInstances": "4", "logDailyQuotaGb": "5", "moveAfter": "3",
		"jobsPerInstance": "20", "baseRegularCount": "2", "regularPercentage": "10", "minInstances": "3"},
	"fleet.bicepparam":   {"spotCapacity": "40", "regularCapacity": "2"},
	"region.bicepparam":  {"maxInstances": "20"},
	"windows.bicepparam": {"maxInstances": "4", "operatingSystem": "'Windows'"},
	"single.bicepparam":  {"diskType": "'Standard_LRS'"},
}

var readsVariable = regexp.MustCompile(`readEnvironmentVariable\('(\w+)'`)

// checkParameters: parameter files read the variables that the scripts set and have the
// prefix and data that the documents name; entries have the defaults that documents promise.
func checkParameters(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(name, "modules/") {
			continue
		}
		want := wantDefaults
		if strings.HasSuffix(name, ".bicepparam") {
			want = given[name]
		}
		for _, p := range d[name].Params {
			v := p.Default
			if v == nil {
				v = p.Value
			}
			if w, ok := want[p.Name]; ok && text(v) != w {
				tell(name, p.Line, "%s is %s, want %s", p.Name, text(v), w)
			}
			for _, m := range readsVariable.FindAllStringSubmatch(text(v), -1) {
				if m[1] != variablesOfEnvironment[p.Name] {
					tell(name, p.Line, "%s is read from %s, want %s", p.Name, m[1], variablesOfEnvironment[p.Name])
				}
			}
			switch {
			case !strings.HasSuffix(name, ".bicepparam"):
			case p.Name == "prefix":
				if prefix := map[bool]string{true: "spotworker-win", false: "spotworker"}[name == "windows.bicepparam"]; p.Value != prefix {
					tell(name, p.Line, "prefix is %s, want %s: commands in the documents name it", text(p.Value), prefix)
				}
			case p.Name == "dataContainers":
				if text(p.Value) != "[map[access:Read name:archive]]" {
					tell(name, p.Line, "data is in %s, want the container archive, for reading, that the documents name", text(p.Value))
				}
			}
		}
		for parameter := range given[name] {
			if !d[name].takes(parameter) {
				tell(name, 0, "%s is not set", parameter)
			}
		}
	}
	checkPackageCommands(d, tell)
}

// checkPackageCommands: packages are unpacked before their scripts run, in every template.
func checkPackageCommands(d deployment, tell report) {
	want := map[string]string{
		"install": "'tar -xzf spotworker.tar.gz && sh ./install.sh'", "update": "'tar -xzf spotworker.tar.gz && sh ./update.sh'",
		"remove": "'for script in ./remove.sh /opt/spotworker/current/remove.sh; do [ ! -f $script ] || exec sh $script; done'",
	}
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			for command, w := range want {
				if got := text(at(p.Default, command)); p.Name == "packageCommands" && got != w {
					tell(entry, p.Line, "%s is %s, want %s", command, got, w)
				}
			}
		}
	}
}
