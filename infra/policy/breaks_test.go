package policy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// breaks are mistakes of the kind that somebody makes: each is one edit of one
// file, after which Azure refuses the deployment, or takes it and does something
// else. The checker or a rule has to notice each edit.
var breaks = []struct{ name, file, old, new string }{
	// The log's way from its file to its table.
	{"a function that transformations do not know", "modules/monitoring.bicep", "iif(isnotnull([\\'time\\']), [\\'time\\'], TimeGenerated)",
		"coalesce([\\'time\\'], TimeGenerated)"},
	{"an operator on many rows", "modules/monitoring.bicep", "| project-away", "| summarize count() | project-away"},
	{"another unknown function", "modules/monitoring.bicep", "TimeGenerated = iif(", "event_type = trim(\" \", kind), TimeGenerated = iif("},
	{"a stream that no table receives", "modules/monitoring.bicep", "var stream = 'Custom-SpotworkerLog'", "var stream = 'SpotworkerLog'"},
	{"a table without its ending", "modules/monitoring.bicep", "name: 'SpotworkerLog_CL'\n  properties",
		"name: 'SpotworkerLog'\n  properties"},
	{"a flow to nowhere", "modules/monitoring.bicep", "destinations: ['workspace']", "destinations: ['workspaces']"},
	{"an output without Custom", "modules/monitoring.bicep", "outputStream: 'Custom-${table.name}'", "outputStream: table.name"},
	{"a column twice", "modules/monitoring.bicep", "  { name: 'to', type: 'string' }\n", "  { name: 'from', type: 'string' }\n"},
	{"a table without a time", "modules/monitoring.bicep", "          { name: 'TimeGenerated', type: 'dateTime' }\n", ""},
	{"a workspace that keeps too little", "modules/monitoring.bicep", "retentionDays < 30 ? 30 : retentionDays",
		"retentionDays < 30 ? 7 : retentionDays"},
	{"a column that the transformation leaves over", "modules/monitoring.bicep", " | project-away [\\'time\\']", ""},
	{"keys to the workspace", "modules/monitoring.bicep", "disableLocalAuth: true", "disableLocalAuth: false"},

	// Alerts.
	{"a window of no size", "modules/no-workers-alert.bicep", "windowSize: 'PT6H'", "windowSize: 'PT7M'"},
	{"a window too long", "modules/no-workers-alert.bicep", "windowSize: 'PT6H'", "windowSize: 'P3D'"},
	{"too frequent", "modules/no-workers-alert.bicep", "evaluationFrequency: 'PT5M'", "evaluationFrequency: 'PT30S'"},
	{"less often than its window", "modules/no-workers-alert.bicep", "    evaluationFrequency: 'PT5M'\n    windowSize: 'PT6H'\n",
		"    evaluationFrequency: 'PT6H'\n    windowSize: 'PT5M'\n"},
	{"a severity that there is not", "modules/no-workers-alert.bicep", "severity: 1", "severity: 5"},
	{"more failures than looks", "modules/no-workers-alert.bicep", "minFailingPeriodsToAlert: 1", "minFailingPeriodsToAlert: 2"},
	{"an alert that is off", "modules/no-workers-alert.bicep", "    enabled: true\n", "    enabled: false\n"},
	{"an alert before there is anything", "modules/foundation.bicep", "if (collects && stage == 'Workers')", "if (collects)"},
	{"an activity alert in a region", "modules/eviction-alert.bicep", "  location: 'global'\n", "  location: 'westeurope'\n"},
	{"an activity without category", "modules/eviction-alert.bicep", "        { field: 'category', equals: 'Administrative' }\n", ""},
	{"an alert on failures alone", "modules/eviction-alert.bicep", "equals: 'Succeeded'", "equals: 'Failed'"},

	// Autoscale.
	{"a look back too short", "modules/autoscale.bicep", "timeWindow: 'PT5M'", "timeWindow: 'PT2M'"},
	{"a look back too long", "modules/autoscale.bicep", "timeWindow: 'PT15M'", "timeWindow: 'P1D'"},
	{"no cooldown", "modules/autoscale.bicep", "cooldown: 'PT10M'", "cooldown: 'PT0S'"},
	{"a cooldown too long", "modules/autoscale.bicep", "cooldown: fromNone ? 'PT15M' : 'PT5M'", "cooldown: fromNone ? 'P8D' : 'PT5M'"},
	{"a grain too fine", "modules/autoscale.bicep", "timeGrain: 'PT1M'", "timeGrain: 'PT30S'"},
	{"up and up", "modules/autoscale.bicep", "direction: 'Decrease'", "direction: 'Increase'"},
	{"down when there is more", "modules/autoscale.bicep", "operator: fromNone ? 'LessThanOrEqual' : 'LessThan'", "operator: 'GreaterThan'"},
	{"up when there is less", "modules/autoscale.bicep", "operator: 'GreaterThan'", "operator: 'LessThan'"},
	{"down above where it goes up", "modules/autoscale.bicep", "jobsPerInstance / 2", "jobsPerInstance * 2"},
	{"divided twice", "modules/autoscale.bicep", "dividePerInstance: false", "dividePerInstance: true"},
	{"a step of none", "modules/autoscale.bicep", "      value: '1'\n", "      value: '0'\n"},
	{"a most that is the least", "modules/autoscale.bicep", "maximum: string(maxInstances)", "maximum: string(minInstances)"},
	{"the most where nothing is known", "modules/autoscale.bicep", "default: string(minInstances)", "default: string(maxInstances)"},
	{"a queue of the blob service", "modules/autoscale.bicep", "/services/queue/queues/", "/services/blob/queues/"},
	{"a target that is no scale set", "modules/autoscale.bicep", "targetResourceUri: scaleSet.id", "targetResourceUri: account.id"},
	{"the other queue", "main.bicep", "queueName: foundation.outputs.names.queue\n", "queueName: foundation.outputs.names.onDemand\n"},
	{"the other set", "main.bicep", "    scaleSetName: '${prefix}-ondemand'\n    accountName",
		"    scaleSetName: '${prefix}-spot'\n    accountName"},
	{"autoscale before its set", "main.bicep", "  dependsOn: [spot]\n", ""},

	// Health, repairs, notices, updates.
	{"probes too close", "modules/vm.bicep", "intervalInSeconds: 10", "intervalInSeconds: 2"},
	{"probes too far apart", "modules/vm.bicep", "intervalInSeconds: 10", "intervalInSeconds: 90"},
	{"too many probes", "modules/vm.bicep", "numberOfProbes: 6", "numberOfProbes: 30"},
	{"no patience with a restart", "modules/vm.bicep", "numberOfProbes: 6", "numberOfProbes: 1"},
	{"a grace too long", "modules/vm.bicep", "gracePeriod: 900", "gracePeriod: 15000"},
	{"another path", "modules/vm.bicep", "requestPath: '/healthz'", "requestPath: '/health'"},
	{"a port of its own", "modules/vm.bicep", "      port: port\n", "      port: 8811\n"},
	{"a connection in place of an answer", "modules/vm.bicep", "protocol: 'http'", "protocol: 'tcp'"},
	{"an old handler", "modules/vm.bicep", "typeHandlerVersion: '2.0'", "typeHandlerVersion: '1.0'"},
	{"somebody else's extension", "modules/vm.bicep", "publisher: 'Microsoft.ManagedServices'", "publisher: 'Microsoft.Azure.Extensions'"},
	{"a repair too soon", "modules/spot-scale-set.bicep", "gracePeriod: 'PT20M'", "gracePeriod: 'PT5M'"},
	{"a repair too late", "modules/regular-scale-set.bicep", "gracePeriod: 'PT20M'", "gracePeriod: 'PT2H'"},
	{"a repair that does not repair", "modules/spot-scale-set.bicep", "repairAction: 'Replace'", "repairAction: 'Restart'"},
	{"no repairs", "modules/spot-scale-set.bicep", "  automaticRepairsPolicy: {\n    enabled: true",
		"  automaticRepairsPolicy: {\n    enabled: false"},
	{"a notice too short", "modules/regular-scale-set.bicep", "notBeforeTimeout: 'PT15M'", "notBeforeTimeout: 'PT3M'"},
	{"a notice too long", "modules/regular-scale-set.bicep", "notBeforeTimeout: 'PT15M'", "notBeforeTimeout: 'PT30M'"},
	{"a batch of more than all", "modules/spot-scale-set.bicep", "maxBatchInstancePercent: 20", "maxBatchInstancePercent: 150"},
	{"no VM may be ill", "modules/spot-scale-set.bicep", "maxUnhealthyInstancePercent: 50", "maxUnhealthyInstancePercent: 0"},
	{"a pause that is none", "modules/spot-scale-set.bicep", "pauseTimeBetweenBatches: 'PT30S'", "pauseTimeBetweenBatches: '30s'"},
	{"automatic OS upgrade", "modules/regular-scale-set.bicep", "    upgradePolicy: {\n",
		"    upgradePolicy: {\n      automaticOSUpgradePolicy: { enableAutomaticOSUpgrade: true }\n"},
	{"a notice of images", "modules/regular-scale-set.bicep", "      scheduledEventsProfile: {\n",
		"      scheduledEventsProfile: {\n        osImageNotificationProfile: { enable: true, notBeforeTimeout: 'PT15M' }\n"},
	{"a restore too long", "main.bicep", "param restoreTimeout string = 'PT1H'", "param restoreTimeout string = 'PT5H'"},
	{"a restore that is on", "main.bicep", "param restoreEvicted bool = false", "param restoreEvicted bool = true"},
	{"VMs that fail for ever", "fleet.bicep", "param failOnInstall bool = false", "param failOnInstall bool = true"},

	// VMs.
	{"fault domains", "modules/spot-scale-set.bicep", "platformFaultDomainCount: 1", "platformFaultDomainCount: 3"},
	{"one placement group", "modules/spot-scale-set.bicep", "singlePlacementGroup: false", "singlePlacementGroup: true"},
	{"a mix that is not called so", "modules/spot-scale-set.bicep", "length(vmSizes) > 1 ? 'Mix' : vmSizes[0]", "vmSizes[0]"},
	{"a Spot set without identity", "modules/spot-scale-set.bicep", "  identity: {\n    type: 'UserAssigned'\n    userAssignedIdentities: " +
		"{ '${identityId}': {} }\n  }\n  sku", "  sku"},
	{"a fleet without identity", "modules/fleet.bicep", "  identity: {\n    type: 'UserAssigned'\n    userAssignedIdentities: { " +
		"'${identityId}': {} }\n  }\n", ""},
	{"a VM without identity", "modules/single-vm.bicep", "  identity: {\n    type: 'UserAssigned'\n    userAssignedIdentities: { " +
		"'${identityId}': {} }\n  }\n", ""},
	{"an identity of the VM's own", "modules/regular-scale-set.bicep",
		"    type: 'UserAssigned'\n    userAssignedIdentities: { '${identityId}': {} }\n", "    type: 'SystemAssigned'\n"},
	{"the other identity", "main.bicep", "identityId: foundation.outputs.onDemandIdentityId",
		"identityId: foundation.outputs.workerIdentityId"},
	{"the other package", "main.bicep", "packageId: foundation.outputs.onDemandPackageId", "packageId: foundation.outputs.packageId"},
	{"a boot that is not trusted", "modules/vm.bicep", "securityType: 'TrustedLaunch'", "securityType: 'ConfidentialVM'"},
	{"a disk that stays", "modules/vm.bicep", "    deleteOption: 'Delete'\n    managedDisk", "    deleteOption: 'Detach'\n    managedDisk"},
	{"an old network", "modules/vm.bicep", "networkApiVersion: '2020-11-01'", "networkApiVersion: '2019-09-01'"},
	{"a password", "modules/vm.bicep", "disablePasswordAuthentication: true", "disablePasswordAuthentication: false"},
	{"a name too long for a VM", "modules/regular-scale-set.bicep", "vm.osProfile('ondemand',", "vm.osProfile('spotworker-ondemand-worker-',"},
	{"a fleet of an interface it does not know", "modules/fleet.bicep", "computeApiVersion: '2024-07-01'", "computeApiVersion: '2026-04-01'"},
	{"capacities in each other's place", "fleet.bicep", "    spotCapacity: spotCapacity\n", "    spotCapacity: regularCapacity\n"},
	{"a single VM at any price but its own", "modules/single-vm.bicep", "    billingProfile: { maxPrice: json(maxPrice) }\n", ""},
	{"an agent with another identity", "modules/vm.bicep", "'identifier-name': 'mi_res_id'", "'identifier-name': 'client_id'"},
	{"a version that reaches regions late", "modules/storage.bicep", "'Microsoft.Storage/storageAccounts@2025-01-01'",
		"'Microsoft.Storage/storageAccounts@2026-04-01'"},
	{"Spot of the newest kind for all", "modules/spot-scale-set.bicep", "if (priority == 'SpotPlus')", "if (priority != 'SpotPlus')"},

	// Network.
	{"a priority beyond the last", "modules/network.bicep", "priority: 4096", "priority: 4097"},
	{"a priority before the first", "modules/network.bicep", "priority: 4096", "priority: 99"},
	{"nothing goes out", "modules/network.bicep", "direction: 'Inbound'", "direction: 'Outbound'"},
	{"a port that is none", "modules/network.bicep", "sourcePortRange: '*'", "sourcePortRange: '70000'"},
	{"an idle time too long", "modules/network.bicep", "idleTimeoutInMinutes: 4", "idleTimeoutInMinutes: 240"},
	{"an address that changes", "modules/network.bicep", "publicIPAllocationMethod: 'Static'", "publicIPAllocationMethod: 'Dynamic'"},
	{"an address of the old kind", "modules/network.bicep", "  sku: { name: 'Standard' }\n  properties: { publicIP",
		"  sku: { name: 'Basic' }\n  properties: { publicIP"},
	{"a subnet of another range", "modules/network.bicep", "          addressPrefix: addressPrefix\n",
		"          addressPrefix: '10.99.0.0/24'\n"},
	{"a subnet without its gateway", "modules/network.bicep", "          natGateway: outbound == 'NatGateway' ? { id: gateway.id } : null\n",
		""},

	// Storage.
	{"an old TLS", "modules/storage.bicep", "minimumTlsVersion: 'TLS1_2'", "minimumTlsVersion: 'TLS1_0'"},
	{"a policy of another name", "modules/storage.bicep", "managementPolicies@2025-01-01' = {\n  parent: account\n  name: 'default'",
		"managementPolicies@2025-01-01' = {\n  parent: account\n  name: 'ages'"},
	{"blobs of another type", "modules/storage.bicep", "blobTypes: ['blockBlob']", "blobTypes: ['appendBlob']"},
	{"ages of neighbours too", "modules/storage.bicep", "prefixMatch: ['${rule.container}/']", "prefixMatch: [rule.container]"},
	{"a service of another name", "modules/storage.bicep", "queueServices@2025-01-01' = {\n  parent: account\n  name: 'default'",
		"queueServices@2025-01-01' = {\n  parent: account\n  name: 'main'"},
	{"an account without queues", "modules/storage.bicep", "kind: 'StorageV2'", "kind: 'BlobStorage'"},
	{"an account that no network can access", "modules/storage.bicep", "publicNetworkAccess: 'Enabled'", "publicNetworkAccess: 'Disabled'"},
	{"a queue twice", "modules/storage.bicep", "concat(names.jobs, [names.onDemand, names.poison])",
		"concat(names.jobs, [names.queue, names.poison])"},
	{"a queue of the blob service's", "modules/storage.bicep", "    parent: queueService\n", "    parent: blobService\n"},
	{"an age twice", "modules/storage.bicep", "{ name: 'workers', container: names.workers, days: retention.workers }",
		"{ name: 'records', container: names.workers, days: retention.workers }"},
	{"a rule that is off", "modules/storage.bicep", "          enabled: true\n          definition",
		"          enabled: false\n          definition"},
	{"a gallery outside of the firewall", "modules/storage.bicep", "bypass: 'AzureServices'", "bypass: 'None'"},
	{"a premium that has no queues", "production.bicepparam", "param redundancy = 'Standard_ZRS'", "param redundancy = 'Premium_LRS'"},

	// Accounts over which jobs are spread.
	{"chosen ids that follow the accounts", "modules/types.bicep", "  chosenIdsOn: int\n", "  chosenIdsOn: int?\n"},
	{"chosen ids on all accounts by default", "modules/foundation.bicep", "moreAccounts.?chosenIdsOn ?? 1",
		"moreAccounts.?chosenIdsOn ?? putOn"},
	{"jobs on all accounts at once", "modules/foundation.bicep", "moreAccounts.?putOn ?? 1", "1 + length(moreNames)"},
	{"a first account that is not the first", "modules/foundation.bicep", "concat([accountName], moreNames)",
		"concat(moreNames, [accountName])"},
	{"more accounts than there are", "modules/foundation.bicep", "putOn > 1 + length(moreNames)", "putOn > 16"},
	{"chosen ids on more accounts than jobs", "modules/foundation.bicep", "chosenIdsOn > putOn", "chosenIdsOn > 16"},
	{"two lists of accounts", "modules/foundation.bicep", "contains(workerSettings, 'SPOTWORKER_MORE_ACCOUNT')",
		"contains(workerSettings, 'SPOTWORKER_ACCOUNT')"},
	{"an account that is taken away", "modules/foundation.bicep", "!startsWith('${spreadOver},', '${recordedAccounts},')",
		"!startsWith('${recordedAccounts},', '${spreadOver},')"},
	{"chosen ids that move", "modules/foundation.bicep", "chosenIdsOn != recordedChosenIdsOn", "chosenIdsOn > recordedChosenIdsOn"},
	{"a refusal that is none", "modules/foundation.bicep", "empty(spreadRefusal) ? spreadOver : fail(spreadRefusal)", "spreadOver"},
	{"a deployment that forgets the accounts", "modules/foundation.bicep", "moreAccounts == null && empty(recordedAccounts)",
		"moreAccounts == null"},
	{"accounts that are not recorded", "modules/storage.bicep", "union(shards, spread)", "shards"},
	{"a further account that says where jobs go", "modules/foundation.bicep", "      spread: {}\n", "      spread: spread\n"},
	{"a further account with heartbeats", "modules/foundation.bicep", "      first: false\n      spread: {}\n",
		"      first: true\n      spread: {}\n"},
	{"a further account without the workers' roles", "modules/foundation.bicep",
		"    name: '${prefix}-worker-roles-more-${i}'\n    scope: resourceGroup(accountGroup)\n    params: {\n      accountName: name\n",
		"    name: '${prefix}-worker-roles-more-${i}'\n    scope: resourceGroup(accountGroup)\n    params: {\n      accountName: accountName\n"},
	{"roles before their account", "modules/foundation.bicep", "      principalType: operatorKind\n      first: false\n    }\n    " +
		"dependsOn: [moreStorage]\n", "      principalType: operatorKind\n      first: false\n    }\n"},
	{"workers that do not learn of the accounts", "modules/foundation.bicep",
		"  empty(moreNames) ? {} : { SPOTWORKER_MORE_ACCOUNT: join(moreNames, ',') },\n", ""},
	{"a single VM that forgets the accounts", "single.bicep", "    recordedAccounts: recordedAccounts\n", "    recordedAccounts: ''\n"},

	// Settings. Each setting comes from one property.
	{"an object id for a client id", "modules/foundation.bicep", "{ AZURE_CLIENT_ID: identities.outputs.worker.clientId }",
		"{ AZURE_CLIENT_ID: identities.outputs.worker.principalId }"},
	{"a resource id for a client id", "modules/foundation.bicep", "AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.clientId",
		"AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.id"},
	{"the gallery's client id", "modules/foundation.bicep", "{ AZURE_CLIENT_ID: identities.outputs.worker.clientId }",
		"{ AZURE_CLIENT_ID: identities.outputs.gallery.clientId }"},
	{"client and object id swapped", "modules/identities.bicep", "output worker identityType = {\n  id: spot.id\n  principalId: " +
		"spot.properties.principalId\n  clientId: spot.properties.clientId", "output worker identityType = {\n  id: spot.id\n  principalId: " +
		"spot.properties.clientId\n  clientId: spot.properties.principalId"},
	{"the other's object id", "modules/identities.bicep", "principalId: regular!.properties.principalId",
		"principalId: spot.properties.principalId"},
	{"a prefix for an account", "modules/foundation.bicep", "SPOTWORKER_ACCOUNT: accountName", "SPOTWORKER_ACCOUNT: prefix"},
	{"an account for a prefix", "modules/foundation.bicep", "SPOTWORKER_PREFIX: prefix", "SPOTWORKER_PREFIX: accountName"},
	{"data that may be written only", "modules/foundation.bicep", "SPOTWORKER_DATA_CONTAINER: join(map(dataContainers,",
		"SPOTWORKER_DATA_CONTAINER: join(map(filter(dataContainers, c => c.access == 'ReadWrite'),"},
	{"data by its access", "modules/foundation.bicep", "SPOTWORKER_DATA_CONTAINER: join(map(dataContainers, c => c.name)",
		"SPOTWORKER_DATA_CONTAINER: join(map(dataContainers, c => c.access)"},
	{"on-demand workers on the wrong queue", "modules/foundation.bicep", "      SPOTWORKER_TAKE_FROM: 'on-demand'\n", ""},
	{"moved after a depth", "main.bicep", "SPOTWORKER_MOVE_AFTER: string(moveAfter)", "SPOTWORKER_MOVE_AFTER: string(jobsPerInstance)"},
	{"a configuration without an end", "modules/foundation.bicep", "s => '${s.key}=${s.value}'), [lastLine])\n\n@description('Lines of " +
		"the on-demand", "s => '${s.key}=${s.value}'), [])\n\n@description('Lines of the on-demand"},
	{"the Spot workers' settings for all", "modules/foundation.bicep", "concat(map(items(onDemandSettings),",
		"concat(map(items(spotSettings),"},

	// Roles.
	{"a role for a person", "modules/worker-roles.bicep", "    principalType: 'ServicePrincipal'\n", "    principalType: 'User'\n"},
	{"an assignment's name without its role", "modules/operator-roles.bicep",
		"guid(account::blobService::workers.id, principalId, roles.blobDataReader)", "guid(account::blobService::workers.id, principalId)"},
	{"a role of the wrong identity", "modules/foundation.bicep", "    principalId: identities.outputs.worker.principalId\n",
		"    principalId: identities.outputs.gallery.principalId\n"},
	{"on-demand roles for Spot workers", "modules/foundation.bicep", "    takesOnDemand: false\n", "    takesOnDemand: true\n"},

	// The package and the policy.
	{"a configuration of another name", "modules/application-version.bicep", "configFileName: 'worker.env'", "configFileName: 'worker.conf'"},
	{"no package name", "modules/application-version.bicep", "        packageFileName: packageFileName\n", ""},
	{"too many copies", "modules/application-version.bicep", "regionalReplicaCount: 1", "regionalReplicaCount: 20"},
	{"a version in no region", "modules/foundation.bicep", "    regions: [location]\n", "    regions: []\n"},
	{"an application for Windows", "modules/gallery.bicep", "supportedOSType: operatingSystem", "supportedOSType: 'Windows'"},
	{"an installation that is not repeated", "modules/application-version.bicep", "scriptBehaviorAfterReboot: 'Rerun'",
		"scriptBehaviorAfterReboot: 'None'"},
	{"a gallery's name with a dash", "modules/foundation.bicep", "${replace(prefix, '-', '_')}_${uniqueString", "${prefix}_${uniqueString"},
	{"a gallery's name that two share", "modules/foundation.bicep", "_${uniqueString(resourceGroup().id)}'\n\nvar ownsAccount",
		"'\n\nvar ownsAccount"},
	{"a configuration that is left out", "modules/application-version.bicep", "        defaultConfigurationLink: empty(configurationUrl) ? " +
		"null : configurationUrl\n", ""},
	{"install and update in each other's place", "modules/application-version.bicep", "install: commands.install", "install: commands.update"},
	{"another policy", "modules/log-association.bicep", "'2ea82cdd-f2e8-4500-af75-67a2e084ca74'", "'eab1f514-22e3-42e3-9a1f-e1dc9199355c'"},
	{"a parameter that the policy does not have", "modules/log-association.bicep", "dcrResourceId: { value: ruleId }",
		"dcrResourceID: { value: ruleId }"},
	{"a policy that does nothing", "modules/log-association.bicep", "effect: { value: 'DeployIfNotExists' }",
		"effect: { value: 'AuditIfNotExists' }"},
	{"a policy for endpoints", "modules/log-association.bicep", "'Microsoft.Insights/dataCollectionRules'",
		"'Microsoft.Insights/dataCollectionEndpoints'"},
	{"a policy without identity", "modules/log-association.bicep", "  identity: {\n    type: 'UserAssigned'\n    userAssignedIdentities: { " +
		"'${identity.id}': {} }\n  }\n", ""},

	// Names and numbers that a person gives.
	{"names too long", "main.bicep", "@maxLength(30)\nparam prefix", "@maxLength(60)\nparam prefix"},
	{"an account's name too long", "main.bicep", "take(replace(prefix, '-', ''), 11)", "take(replace(prefix, '-', ''), 20)"},
	{"an account's name with dashes", "fleet.bicep", "take(replace(prefix, '-', ''), 11)", "take(prefix, 11)"},
	{"more VMs than a set has", "main.bicep", "@maxValue(1000)\nparam maxInstances", "@maxValue(5000)\nparam maxInstances"},
	{"a file that what-if cannot look into", "modules/foundation.bicep", "    applicationName: spotApplication.name\n",
		"    applicationName: gallery.outputs.name\n"},
	{"processors of two kinds", "production.bicepparam", "'Standard_D2s_v4'", "'Standard_D2pds_v5'"},
	{"a size that is no Spot", "cheapest.bicepparam", "['Standard_D2as_v5']", "['Standard_B2s']"},

	// Products.
	{"a pause as long as a repair", "modules/regular-scale-set.bicep", "pauseTimeBetweenBatches: 'PT30S'", "pauseTimeBetweenBatches: 'PT30M'"},
	{"no pause", "modules/spot-scale-set.bicep", "pauseTimeBetweenBatches: 'PT30S'", "pauseTimeBetweenBatches: 'PT0S'"},
	{"batches of single VMs", "modules/spot-scale-set.bicep", "maxBatchInstancePercent: 20", "maxBatchInstancePercent: 5"},
}

// blind are breaks that nothing here notices, with the reason.
var blind = map[string]string{}

// TestBreaksAreNoticed makes each break in a copy of the deployment, a quick run a sample of
// them.
func TestBreaksAreNoticed(t *testing.T) {
	command := checkerCommand(t)
	var noticed atomic.Int64
	t.Run("breaks", func(t *testing.T) {
		for _, b := range proof.Some(t, 15, breaks) {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				by := notice(t, command, b.file, b.old, b.new)
				t.Logf("noticed by %q", by)
				if by != "" {
					noticed.Add(1)
				}
				reason, known := blind[b.name]
				switch {
				case by == "" && !known:
					t.Error("nothing notices it")
				case by != "" && known:
					t.Errorf("noticed by %s, and listed as one that nothing notices: %s", by, reason)
				}
			})
		}
	})
	if !proof.Full() {
		return
	}
	const fewest = 80
	if n := int(noticed.Load()); len(breaks) < fewest || n*8 < len(breaks)*7 {
		t.Errorf("%d of %d breaks noticed, want 7 of 8 of at least %d", n, len(breaks), fewest)
	}
}

// notice makes an edit in a copy of the deployment and returns what notices it: the
// checker, a rule, or nothing.
func notice(t *testing.T, command []string, file, old, replacement string) string {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "infra", "bicep")
	if err := os.CopyFS(folder, os.DirFS(bicepFolder)); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(folder, file), old, replacement)
	run := exec.CommandContext(t.Context(), command[0], slices.Concat(command[1:], []string{"--dump", "infra/bicep"})...)
	run.Dir = root
	var findings bytes.Buffer
	run.Stderr = &findings
	dump, err := run.Output()
	if err != nil || bytes.Contains(findings.Bytes(), []byte(" : ")) {
		return "the checker: " + firstLine(findings.Bytes())
	}
	d, err := read(dump, folder)
	if err != nil {
		t.Fatal(err)
	}
	if found := judge(d); len(found) > 0 {
		return fmt.Sprint(found[0])
	}
	return ""
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(line)
}
