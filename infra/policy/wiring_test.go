package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// newestVersion is how new a version of Azure's interface may be: a year old when
// this was written, since new ones reach regions late. SpotPlus needs a newer one.
const (
	newestVersion  = "2025-11-22"
	oldestVersion  = "2020-10-01"
	spotPlusSymbol = "plusScaleSet"
	// spotPlusVersion is the first that knows the priority SpotPlus.
	spotPlusVersion = "2026-04-01"
)

// checkVersions: each interface is in every region.
func checkVersions(d deployment, tell report) {
	for name, f := range d {
		for _, r := range f.Resources {
			if v := r.APIVersion; r.Symbol != spotPlusSymbol && (v > newestVersion || v < oldestVersion) {
				tell(name, r.Line, "%s is of version %s, want %s to %s", r.Symbol, v, oldestVersion, newestVersion)
			}
			if r.Symbol == spotPlusSymbol && r.APIVersion < spotPlusVersion {
				tell(name, r.Line, "%s is of version %s, and SpotPlus is known from %s on", r.Symbol, r.APIVersion, spotPlusVersion)
			}
		}
	}
	const spot = "modules/spot-scale-set.bicep"
	for _, r := range d[spot].Resources {
		if want := "priority == 'Spot'"; r.Condition != want {
			tell(spot, r.Line, "%s is made if %s, want %s", r.Symbol, r.Condition, want)
		}
	}
}

// settingsFrom is which property each setting of a worker comes from.
var settingsFrom = map[string]string{
	"sharedSettings": "union( { SPOTWORKER_ACCOUNT: accountName SPOTWORKER_PREFIX: prefix SPOTWORKER_LOG_FORMAT: 'json' }, " +
		"empty(moreNames) ? {} : { SPOTWORKER_MORE_ACCOUNT: join(moreNames, ',') }, " +
		"empty(dataContainers) ? {} : { SPOTWORKER_DATA_CONTAINER: join(map(dataContainers, c => c.name), ',') }, " +
		"pushesMetrics ? { SPOTWORKER_METRICS_PUSH: metrics!.outputs.url } : {}, " +
		"evictionRate > 0 ? { SPOTWORKER_EVICTION_RATE: string(evictionRate) } : {}, workerSettings )",
	"spotSettings": "union(sharedSettings, { AZURE_CLIENT_ID: identities.outputs.worker.clientId })",
	"onDemandSettings": "onDemand ? union(sharedSettings, { AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.clientId " +
		"SPOTWORKER_TAKE_FROM: 'on-demand' }) : {}",
	"galleryName":    "'${replace(prefix, '-', '_')}_${uniqueString(resourceGroup().id)}'",
	"packagesFolder": "ownsAccount ? applicationVersion : '${applicationVersion}/${location}'",
	"packagesUrl":    "'https://${accountName}.blob.${environment().suffixes.storage}/${names.packages}/'",
	"lastLine":       "'# end of worker.env'",
}

// outputsFrom is the same for outputs, by file.
var outputsFrom = map[string]map[string]string{
	"modules/foundation.bicep": {
		"workerConfiguration":   "concat(map(items(spotSettings), s => '${s.key}=${s.value}'), [lastLine])",
		"onDemandConfiguration": "onDemand ? concat(map(items(onDemandSettings), s => '${s.key}=${s.value}'), [lastLine]) : []",
		"packageId":             "stage == 'Foundation' ? '' : version!.outputs.versionId",
		"onDemandPackageId":     "stage != 'Foundation' && onDemand ? onDemandVersion!.outputs.versionId : ''",
	},
	"modules/application-version.bicep": {"versionId": "applicationVersion.id"},
	"modules/gallery-roles.bicep":       {"identityId": "identityId"},
	"modules/worker-roles.bicep":        {"identityId": "identityId"},
	"modules/log-association.bicep":     {"assignmentId": "assignment.id"},
	"modules/monitoring.bicep":          {"workspaceId": "workspace.id", "tableName": "table.name", "ruleId": "rule.id"},
	"modules/network.bicep":             {"subnetId": "network::workers.id"},
}

// identitiesFrom is whose ids an identity has, by the symbol of its resource.
var identitiesFrom = map[string]string{"worker": "spot", "onDemandWorker": "regular!", "gallery": "gallery"}

// checkSettings: each setting of a worker, and each id, comes from its own property.
func checkSettings(d deployment, tell report) {
	const foundation = "modules/foundation.bicep"
	for name, want := range settingsFrom {
		if got := text(named(d[foundation].Variables, name)); got != want {
			tell(foundation, 0, "%s is\n%s, want\n%s", name, got, want)
		}
	}
	for name, outputs := range outputsFrom {
		for output, want := range outputs {
			if got := text(named(d[name].Outputs, output)); got != want {
				tell(name, 0, "output %s is %s, want %s", output, got, want)
			}
		}
	}
	for output, symbol := range identitiesFrom {
		v := named(d["modules/identities.bicep"].Outputs, output)
		got := strings.Join(strings.Fields(fmt.Sprint(text(v))), " ")
		parts := []string{"id: " + strings.TrimSuffix(symbol, "!") + "!?.id", "principalId: " + symbol + ".properties.principalId",
			"clientId: " + symbol + ".properties.clientId"}
		if object, ok := v.(map[string]any); ok && object["$expr"] == nil {
			got = "id: " + text(object["id"]) + " principalId: " + text(object["principalId"]) + " clientId: " + text(object["clientId"])
		}
		if !regexp.MustCompile(strings.Join([]string{parts[0], regexp.QuoteMeta(parts[1]), regexp.QuoteMeta(parts[2])}, " ")).MatchString(got) {
			tell("modules/identities.bicep", 0, "ids of %s are %s, want those of %s", output, got, symbol)
		}
	}
	needWords(d, "modules/foundation.bicep", tell, "package: configurationIn == 'Package' ? 'spotworker-ondemand${packageSuffix}' : "+
		"packageName",
		"var packageSuffix = operatingSystem == 'Windows' ? '.zip' : '.tar.gz'")
	needWords(d, "modules/no-workers-alert.bicep", tell, "query: query", "operator: 'GreaterThan'", "threshold: 0\n")
	needWords(d, "modules/monitoring.bicep", tell, "{ name: 'Computer', type: 'string' }", "{ name: 'FilePath', type: 'string' }",
		"windowsEventLogs: operatingSystem == 'Windows'\n")
	needWords(d, "modules/eviction-alert.bicep", tell, "equals: 'Microsoft.Compute/virtualMachineScaleSets/evictSpotVM/action'",
		"equals: 'Microsoft.Compute/virtualMachines/evictSpotVM/action'")
	needWords(d, "modules/fleet.bicep", tell, "allocationStrategy: allocationStrategy\n", "allocationStrategy: 'LowestPrice'\n",
		"  capacity: spotCapacity\n", "  capacity: regularCapacity\n", "  zones: empty(zones) ? null : zones\n")
	needWords(d, "modules/single-vm.bicep", tell, "managedDisk: { storageAccountType: diskType }\n")
	needWords(d, "modules/monitoring.bicep", tell, "retentionInDays: retentionDays < 30 ? 30 : retentionDays\n",
		"retentionInDays: retentionDays\n")
	needWords(d, "modules/spot-plus.bicep", tell, "  sku: sku\n", "  zones: empty(zones) ? null : zones\n")
	needWords(d, "modules/regular-scale-set.bicep", tell, "    name: vmSize\n")
	needWords(d, "modules/storage.bicep", tell, "  sku: { name: redundancy }\n")
	needWords(d, "modules/spot-scale-set.bicep", tell, "scheduledEventsPolicy: publishEvents\n", "priorityMixPolicy: mixed\n")
	needWords(d, "main.bicep", tell, "union(onDemand ? { SPOTWORKER_CHANGEOVER: changeover, SPOTWORKER_MOVE_AFTER: string(moveAfter) } : "+
		"{}, workerSettings)")
	needWords(d, "modules/log-association.bicep", tell,
		"operatingSystem == 'Windows'\n  ? 'eab1f514-22e3-42e3-9a1f-e1dc9199355c'\n  : '2ea82cdd-f2e8-4500-af75-67a2e084ca74'",
		"'Microsoft.Insights/dataCollectionRules'")
}

// otherwise has the values whose name differs from the name of their module's
// parameter: by file and module, and by parameter.
var otherwise = map[string]map[string]string{
	"main.bicep foundation": {
		"workerSettings": "union(onDemand ? { SPOTWORKER_CHANGEOVER: changeover, SPOTWORKER_MOVE_AFTER: string(moveAfter) } : {}, " +
			"workerSettings)",
		"packageCommands": "windows ? windowsPackageCommands : packageCommands", "logFiles": "windows ? windowsLogFiles : logFiles",
	},
	"main.bicep spot": {
		"scaleSetName": "'${prefix}-spot'", "subnetId": "foundation.outputs.subnetId", "identityId": "foundation.outputs.workerIdentityId",
		"packageId": "foundation.outputs.packageId", "sendLogs": "foundation.outputs.collectsLogs", "image": "windows ? windowsImage : image",
	},
	"main.bicep regular": {
		"scaleSetName": "'${prefix}-ondemand'", "subnetId": "foundation.outputs.subnetId", "identityId": "foundation.outputs.onDemandIdentityId",
		"packageId": "foundation.outputs.onDemandPackageId", "sendLogs": "foundation.outputs.collectsLogs",
		"vmSize": "onDemandVmSize", "capacity": "onDemandCapacity", "image": "windows ? windowsImage : image",
	},
	"main.bicep spotAutoscale": {
		"scaleSetName": "'${prefix}-spot'", "queueName": "foundation.outputs.names.queue",
		"minInstances": "jobQueues > 1 ? max(minInstances, 1) : minInstances", "jobsPerInstance": "max(jobsPerInstance / jobQueues, 2)",
		"times": "scaleTimes",
	},
	"main.bicep regularAutoscale": {
		"scaleSetName": "'${prefix}-ondemand'", "queueName": "foundation.outputs.names.onDemand",
		"minInstances": "onDemandMinInstances", "maxInstances": "onDemandMaxInstances", "times": "[]",
	},
	"fleet.bicep foundation": {"onDemand": "false", "operatingSystem": "'Linux'"},
	"single.bicep foundation": {"onDemand": "false", "operatingSystem": "'Linux'", "queueShards": "1", "queueShardsTaken": "1",
		"moreAccounts": ""},
	"fleet.bicep fleet": {
		"fleetName": "'${prefix}-fleet'", "subnetId": "foundation.outputs.subnetId", "identityId": "foundation.outputs.workerIdentityId",
		"packageId": "foundation.outputs.packageId", "sendLogs": "foundation.outputs.collectsLogs",
	},
	"single.bicep machine": {
		"vmName": "'${prefix}-vm'", "subnetId": "foundation.outputs.subnetId", "identityId": "foundation.outputs.workerIdentityId",
		"packageId": "foundation.outputs.packageId", "sendLogs": "foundation.outputs.collectsLogs",
	},
	"modules/foundation.bicep storage": {
		"firewall": "storageFirewall", "subnetIds": "concat([network.outputs.subnetId], otherSubnets)", "addresses": "operatorAddresses",
		"first": "true",
	},
	"modules/foundation.bicep moreStorage": {
		"firewall": "storageFirewall", "subnetIds": "concat([network.outputs.subnetId], otherSubnets)", "addresses": "operatorAddresses",
		"first":       "false",
		"accountName": "name", "dataContainers": "[]", "spread": "map[]",
	},
	"modules/foundation.bicep network": {"remoteStorage": "!ownsAccount"},
	// Where the accounts are others, also in a further region, nothing is made.
	"modules/foundation.bicep identities": {"prefix": "checkedPrefix"},
	"modules/foundation.bicep workerRoles": {
		"principalId": "identities.outputs.worker.principalId", "identityId": "identities.outputs.worker.id", "takesOnDemand": "false",
		"first": "true",
	},
	"modules/foundation.bicep moreWorkerRoles": {
		"principalId": "identities.outputs.worker.principalId", "identityId": "identities.outputs.worker.id", "takesOnDemand": "false",
		"first":       "false",
		"accountName": "name", "dataContainers": "[]",
	},
	"modules/foundation.bicep onDemandWorkerRoles": {
		"principalId": "identities.outputs.onDemandWorker!.principalId", "identityId": "identities.outputs.onDemandWorker!.id",
		"takesOnDemand": "true", "first": "true",
	},
	"modules/foundation.bicep moreOnDemandWorkerRoles": {
		"principalId": "identities.outputs.onDemandWorker!.principalId", "identityId": "identities.outputs.onDemandWorker!.id",
		"takesOnDemand": "true", "first": "false",
		"accountName": "name", "dataContainers": "[]",
	},
	"modules/foundation.bicep operatorRoles": {"principalId": "operatorId", "principalType": "operatorKind", "first": "true"},
	"modules/foundation.bicep moreOperatorRoles": {"principalId": "operatorId", "principalType": "operatorKind", "first": "false",
		"accountName": "name", "dataContainers": "[]"},
	"modules/foundation.bicep galleryRoles": {
		"containerName": "names.packages", "principalId": "identities.outputs.gallery.principalId", "identityId": "identities.outputs.gallery.id",
	},
	"modules/foundation.bicep gallery": {"applicationNames": "map(applications, a => a.name)",
		"identityId": "galleryRoles.outputs.identityId"},
	"modules/foundation.bicep version": {
		"applicationName": "spotApplication.name", "version": "applicationVersion", "packageFileName": "packageName",
		"commands":         "packageCommands",
		"packageUrl":       "'${packagesUrl}${packagesFolder}/${spotApplication.package}'",
		"configurationUrl": "configurationIn == 'Package' ? '' : '${packagesUrl}${packagesFolder}/${spotApplication.configuration}'",
		"regions":          "[location]",
	},
	"modules/foundation.bicep onDemandVersion": {
		"applicationName": "onDemandApplication.name", "version": "applicationVersion", "packageFileName": "packageName",
		"commands":         "packageCommands",
		"packageUrl":       "'${packagesUrl}${packagesFolder}/${onDemandApplication.package}'",
		"configurationUrl": "configurationIn == 'Package' ? '' : '${packagesUrl}${packagesFolder}/${onDemandApplication.configuration}'",
		"regions":          "[location]",
	},
	"modules/foundation.bicep log":            {"retentionDays": "logRetentionDays", "dailyQuotaGb": "logDailyQuotaGb"},
	"modules/foundation.bicep logAssociation": {"ruleId": "log!.outputs.ruleId"},
	"modules/foundation.bicep noWorkersAlert": {"workspaceId": "log!.outputs.workspaceId", "tableName": "log!.outputs.tableName"},
	"modules/foundation.bicep metrics": {
		"principalIds": "concat( [identities.outputs.worker.principalId], onDemand ? [identities.outputs.onDemandWorker!.principalId] : [] )",
	},
	"modules/foundation.bicep storageLog":      {"workspaceId": "log!.outputs.workspaceId"},
	"modules/foundation.bicep moreStorageLogs": {"workspaceId": "log!.outputs.workspaceId", "accountName": "name"},
	"modules/log-association.bicep policyRoles": {
		"principalId": "identity.properties.principalId", "roleIds": "[roles.monitoringContributor, roles.logAnalyticsContributor]",
	},
	"main.bicep spot restore": {"restore": "restoreEvicted && !autoscale"},
}

// waits lists the dependencies of a module from which it takes no output, and madeIf
// the condition of a module that is not always made.
var (
	waits = map[string]string{
		"main.bicep spotAutoscale": "[spot]", "main.bicep regularAutoscale": "[regular]",
		"modules/foundation.bicep workerRoles": "[storage]", "modules/foundation.bicep onDemandWorkerRoles": "[storage]",
		"modules/foundation.bicep operatorRoles": "[storage]", "modules/foundation.bicep galleryRoles": "[storage]",
		"modules/foundation.bicep version": "[gallery]", "modules/foundation.bicep onDemandVersion": "[gallery]",
		"modules/foundation.bicep storageLog":      "[storage]",
		"modules/foundation.bicep moreWorkerRoles": "[moreStorage]", "modules/foundation.bicep moreOnDemandWorkerRoles": "[moreStorage]",
		"modules/foundation.bicep moreOperatorRoles": "[moreStorage]", "modules/foundation.bicep moreStorageLogs": "[moreStorage]",
	}
	madeIf = map[string]string{
		"modules/spot-scale-set.bicep plusScaleSet": "priority == 'SpotPlus'",
		"main.bicep spot": "stage == 'Workers'", "main.bicep spotAutoscale": "stage == 'Workers' && scales",
		"main.bicep regular": "stage == 'Workers' && onDemand", "main.bicep regularAutoscale": "stage == 'Workers' && onDemand",
		"fleet.bicep fleet": "stage == 'Workers'", "single.bicep machine": "stage == 'Workers'",
		"modules/foundation.bicep storage": "ownsAccount", "modules/foundation.bicep onDemandWorkerRoles": "onDemand",
		"modules/foundation.bicep operatorRoles": "!empty(operatorId) && ownsAccount",
		"modules/foundation.bicep log":           "collects", "modules/foundation.bicep logAssociation": "collects",
		"modules/foundation.bicep storageLog":  "collects && logStorage && ownsAccount",
		"modules/foundation.bicep moreStorage": "ownsAccount", "modules/foundation.bicep moreOnDemandWorkerRoles": "onDemand",
		"modules/foundation.bicep moreOperatorRoles": "!empty(operatorId) && ownsAccount",
		"modules/foundation.bicep moreStorageLogs":   "collects && logStorage && ownsAccount",
		"modules/foundation.bicep noWorkersAlert":    "collects && stage == 'Workers'",
		"modules/foundation.bicep evictionAlert":     "monitoring",
		"modules/foundation.bicep metrics":           "pushesMetrics",
		"modules/foundation.bicep version":           "stage != 'Foundation'",
		"modules/foundation.bicep onDemandVersion":   "stage != 'Foundation' && onDemand",
		"modules/foundation.bicep prometheusAlerts":  "pushesMetrics && stage == 'Workers'",
	}
)

// checkHandedDown: a module's parameter gets the value of the same name, or the
// listed value; the module is made and waits as listed; and nothing is named by an
// output, which what-if could not look into.
func checkHandedDown(d deployment, tell report) {
	for name, f := range d {
		for _, m := range f.Modules {
			key := name + " " + m.Symbol
			params, _ := at(m.Body, "params").(map[string]any)
			for param, v := range params {
				want := param
				for _, list := range []string{key, key + " " + param} {
					if other, ok := otherwise[list][param]; ok {
						want = other
					}
				}
				got := text(v)
				if list, ok := v.([]any); ok {
					got = listText(list)
				}
				if got != want {
					tell(name, m.Line, "%s of %s is %s, want %s", param, m.Symbol, got, want)
				}
				if strings.HasSuffix(param, "Name") && strings.Contains(got, ".outputs.") && param != "tableName" && param != "queueName" {
					tell(name, m.Line, "%s of %s is an output: what-if cannot look into the module", param, m.Symbol)
				}
			}
			if got := listText(at(m.Body, "dependsOn")); got != waits[key] {
				tell(name, m.Line, "%s waits for %q, want %q", m.Symbol, got, waits[key])
			}
			if m.Condition != madeIf[key] {
				tell(name, m.Line, "%s is made if %q, want %q", m.Symbol, m.Condition, madeIf[key])
			}
		}
	}
}

// listText writes a list as Bicep does.
func listText(v value) string {
	list, ok := v.([]any)
	if !ok {
		return text(v)
	}
	parts := make([]string, 0, len(list))
	for _, item := range list {
		parts = append(parts, text(item))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// signsIn are types whose resources act by an identity that they are given.
var signsIn = []string{
	"Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Compute/virtualMachines", "Microsoft.AzureFleet/fleets",
	"Microsoft.Compute/galleries", "Microsoft.Authorization/policyAssignments",
}

// singletons are types with a single resource, called default.
var singletons = []string{
	"Microsoft.Storage/storageAccounts/queueServices", "Microsoft.Storage/storageAccounts/blobServices",
	"Microsoft.Storage/storageAccounts/managementPolicies",
}

// checkResources: every child has its parent, and no list that resources are made from has
// an entry twice.
func checkResources(d deployment, tell report) {
	for name, f := range d {
		types := map[string]string{}
		for _, r := range f.Resources {
			types[r.Symbol] = r.Type
		}
		for _, r := range f.Resources {
			if slices.Contains(singletons, r.Type) && at(r.Body, "name") != "default" {
				tell(name, r.Line, "%s is called %s, want default (%s)", r.Symbol, text(at(r.Body, "name")), namesPage)
			}
			if r.Existing {
				continue
			}
			if last := strings.LastIndex(r.Type, "/"); strings.Count(r.Type, "/") > 1 && types[r.Parent] != r.Type[:last] &&
				!strings.HasSuffix(types[lastPart(r.Parent)], r.Type[:last]) {
				tell(name, r.Line, "parent of %s is %q, want a %s", r.Symbol, r.Parent, r.Type[:last])
			}
			if twice := repeated(r.Loop); twice != "" {
				tell(name, r.Line, "%s is made twice from %s", r.Symbol, twice)
			}
		}
	}
	for _, list := range []struct{ file, variable, key string }{
		{"modules/storage.bicep", "kept", "name"}, {"modules/storage.bicep", "kept", "container"},
	} {
		seen := map[string]bool{}
		entries, _ := named(d[list.file].Variables, list.variable).([]any)
		for _, entry := range entries {
			key := text(at(entry, list.key))
			if seen[key] {
				tell(list.file, 0, "%s has two entries with the %s %s, which would be one resource", list.variable, list.key, key)
			}
			seen[key] = true
		}
	}
}

func lastPart(symbol string) string {
	return symbol[strings.LastIndex(symbol, ":")+1:]
}

// repeated returns an entry that a list in a loop has twice.
func repeated(loop string) string {
	for _, list := range regexp.MustCompile(`\[([^\[\]]+)\]`).FindAllStringSubmatch(loop, -1) {
		var seen []string
		for entry := range strings.SplitSeq(list[1], ",") {
			if entry = strings.TrimSpace(entry); slices.Contains(seen, entry) {
				return entry
			}
			seen = append(seen, entry)
		}
	}
	return ""
}

// checkAlertTimes: the rule does not look less often than its window is long.
func checkAlertTimes(d deployment, tell report) {
	const name = "modules/no-workers-alert.bicep"
	for _, r := range d[name].Resources {
		window, _ := at(r.Body, "properties", "windowSize").(string)
		frequency, _ := at(r.Body, "properties", "evaluationFrequency").(string)
		w, ok := duration(window)
		f, also := duration(frequency)
		if !ok || !also || f > w {
			tell(name, r.Line, "%s looks every %s at a window of %s (%s)", r.Symbol, frequency, window, logAlertPage)
		}
	}
}

// wantScaling is the rule of autoscale in either direction. It adds fast and removes one VM
// at a time, whose jobs the others take over.
var wantScaling = map[string]map[string]string{
	"Increase": {
		"metricTrigger operator": "'GreaterThan'", "metricTrigger threshold": "fromNone ? 0 : jobsPerInstance",
		"scaleAction value":    "fromNone ? '1' : string(max(1, maxInstances / 10))",
		"scaleAction cooldown": "fromNone ? 'PT15M' : 'PT5M'", "metricTrigger timeWindow": "'PT5M'",
	},
	"Decrease": {
		"metricTrigger operator":  "fromNone ? 'LessThanOrEqual' : 'LessThan'",
		"metricTrigger threshold": "fromNone ? 0 : jobsPerInstance / 2", "scaleAction value": "'1'", "scaleAction cooldown": "'PT10M'",
		"metricTrigger timeWindow": "'PT15M'",
	},
}

// checkDirections: one rule for each direction, with a margin between them.
func checkDirections(d deployment, tell report) {
	const name = "modules/autoscale.bicep"
	for _, r := range d[name].Resources {
		if r.Existing || r.Symbol != "autoscale" {
			continue
		}
		rules, _ := named(d[name].Variables, "rules").([]any)
		left := map[string]bool{"Increase": true, "Decrease": true}
		for _, rule := range rules {
			direction, _ := at(rule, "scaleAction", "direction").(string)
			delete(left, direction)
			for key, want := range wantScaling[direction] {
				if got := text(at(rule, strings.Fields(key)...)); got != want {
					tell(name, r.Line, "%s of the rule to %s is %s, want %s (%s)", key, direction, got, want, autoscaleDesign)
				}
			}
		}
		for direction := range left {
			tell(name, r.Line, "no rule has the direction %s (%s)", direction, autoscaleDesign)
		}
	}
}

// checkTimes: there is a profile for the usual time, which has no recurrence, and each time
// of the week has a profile that begins it and a profile that ends it. The ending profile
// bears the name by which Azure knows it as the usual profile. Times that would have no
// effect are refused.
func checkTimes(d deployment, tell report) {
	const name = "modules/autoscale.bicep"
	for _, r := range d[name].Resources {
		want := "concat([{ name: 'queue depth', capacity: usual, rules: rules }], profilesOfTimes)"
		if got := text(at(r.Body, "properties", "profiles")); r.Symbol == "autoscale" && got != want {
			tell(name, r.Line, "profiles are %s, want %s", got, want)
		}
	}
	profiles := text(named(d[name].Variables, "profilesOfTimes"))
	for _, want := range []string{
		"flatten(map(times, time => [", "rules: time.maxInstances == 0 ? [] : rules", "name: string({ name: 'queue depth', for: time.name })",
		"days: time.begin.days", "hours: [time.begin.hour]", "days: time.end.days", "hours: [time.end.hour]", "capacity: usual",
	} {
		if !strings.Contains(strings.Join(strings.Fields(profiles), " "), want) {
			tell(name, 0, "profiles of times lack %s (%s)", want, autoscaleTimes)
		}
	}
	scaled := text(named(d["main.bicep"].Variables, "scaleTimes"))
	if !strings.HasPrefix(scaled, "!autoscale && !empty(times) ? fail(") || !strings.HasSuffix(scaled, " : times") {
		tell("main.bicep", 0, "times without autoscale are not refused: %s", scaled)
	}
	for _, m := range d["main.bicep"].Modules {
		if got := text(at(m.Body, "params", "times")); m.Symbol == "spotAutoscale" && got != "scaleTimes" {
			tell("main.bicep", m.Line, "the Spot VMs scale by %s, want scaleTimes", got)
		}
	}
}

// longest is how many characters names may have, of resources that begin with the
// prefix.
var longest = map[string]int{
	"Microsoft.Network/virtualNetworks": 64, "Microsoft.Network/networkSecurityGroups": 80, "Microsoft.Network/natGateways": 80,
	"Microsoft.Network/publicIPAddresses": 80, "Microsoft.OperationalInsights/workspaces": 63,
	"Microsoft.Insights/dataCollectionEndpoints": 44, "Microsoft.Insights/dataCollectionRules": 64,
	"Microsoft.Insights/scheduledQueryRules": 260, "Microsoft.Insights/activityLogAlerts": 260,
	"Microsoft.ManagedIdentity/userAssignedIdentities": 128, "Microsoft.Authorization/policyAssignments": 64,
}

// checkNameLengths: with the longest prefix no name is longer than Azure takes.
func checkNameLengths(d deployment, tell report) {
	for name, f := range d {
		for _, r := range f.Resources {
			most, known := longest[r.Type]
			rest, found := strings.CutPrefix(strings.Trim(text(at(r.Body, "name")), "'"), "${prefix}")
			if r.Existing || !known || !found {
				continue
			}
			if n := longestPrefix + len(rest); n > most {
				tell(name, r.Line, "name of %s has up to %d characters, Azure takes %d (%s)", r.Symbol, n, most, namesPage)
			}
		}
		for _, m := range regexp.MustCompile(`osProfile\('([^']*)'`).FindAllStringSubmatch(f.source, -1) {
			if len(m[1]) > 15 {
				tell(name, 0, "VMs' names begin with %s, Azure takes 15 characters", m[1])
			}
		}
	}
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			switch p.Name {
			case "prefix":
				if !slices.Contains(p.Decorators, fmt.Sprintf("@maxLength(%d)", longestPrefix)) {
					tell(entry, p.Line, "prefix has not at most %d characters", longestPrefix)
				}
			case "accountName":
				if got, want := text(p.Default), "'${take(replace(prefix, '-', ''), 11)}${uniqueString(resourceGroup().id)}'"; got != want {
					tell(entry, p.Line, "account's name is %s, want %s: 24 of a-z and 0-9 (%s)", got, want, namesPage)
				}
			case "minInstances", "maxInstances", "capacity":
				if !slices.Contains(p.Decorators, "@maxValue(1000)") {
					tell(entry, p.Line, "%s is not at most 1000 (%s)", p.Name, flexiblePage)
				}
			case "restoreTimeout":
				if wrong := lasts(15*60e9, 2*3600e9)(text(p.Default)); wrong != "" {
					tell(entry, p.Line, "restoreTimeout: %s (rest/api/compute, SpotRestorePolicy)", wrong)
				}
			}
		}
	}
}

var moduleIndex = regexp.MustCompile(`\b([A-Za-z_]\w*)\[[^\]]*\]!?\.outputs\b`)

// checkIndexes: nothing takes an output of one module of a loop. Azure may evaluate the
// branch of a condition that is not taken, and a loop is empty or shorter there.
func checkIndexes(d deployment, tell report) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		for _, m := range moduleIndex.FindAllStringSubmatch(d[path].source, -1) {
			tell(path, 0, "%s is an output of a loop, which may be empty: make it a module of its own, with a condition", m[0])
		}
	}
}
