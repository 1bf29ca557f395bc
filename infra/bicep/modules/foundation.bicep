// Everything that VMs of a scale set or a fleet need: storage, identities with
// their roles, the network, the package, the log.

import {
  configurationPlaceType
  dataContainerType
  namesType
  operatingSystemType
  outboundType
  packageCommandsType
  principalKindType
  retentionType
  stageType
} from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('How much to deploy.')
param stage stageType

@description('Name of the storage account.')
param accountName string

@description('Resource group of the storage account. Where it is another one, the account and its containers are that deployment\'s.')
param accountGroup string

@description('Whether only named networks may access the account.')
param storageFirewall bool

@description('Public IPv4 addresses, or ranges of them, that may access the account.')
param operatorAddresses string[]

@description('Resource ids of subnets of other deployments that may access the account.')
param otherSubnets string[]

@description('How often the account keeps the data.')
param redundancy 'Standard_LRS' | 'Standard_ZRS'

@description('How long blobs are kept.')
param retention retentionType

@description('Containers with the data that jobs work on.')
param dataContainers dataContainerType[]

@description('Object id of who puts jobs and reads results; empty for none.')
param operatorId string

@description('What kind of principal that is.')
param operatorKind principalKindType

@description('Address range of the network.')
param addressPrefix string

@description('How VMs reach the internet.')
param outbound outboundType

@description('What the VMs run.')
param operatingSystem operatingSystemType

@description('Version of the VM application.')
param applicationVersion string

@description('Commands of the package.')
param packageCommands packageCommandsType

@description('Where VMs get their configuration from: a Blob of its own, or the Package.')
param configurationIn configurationPlaceType

@description('Over how many queues jobs are put.')
param queueShards int

@description('From how many queues jobs are taken, if that is more.')
param queueShardsTaken int

@description('Whether there are VMs of regular priority for the on-demand queue.')
param onDemand bool

@description('Settings of all workers, by the names of their environment variables.')
param workerSettings { *: string }

@description('Whether the worker\'s log is collected and alerts are set.')
param monitoring bool

@description('Whether writes and deletions in the storage account are logged too.')
param logStorage bool

@description('Files that hold the worker\'s log.')
param logFiles string[]

@description('Days until log lines are deleted.')
param logRetentionDays int

@description('Gigabytes of log a day after which lines are dropped; -1 for no end.')
param logDailyQuotaGb int

@description('Resource ids of the action groups that alerts are sent to.')
param actionGroupIds string[]

@description('Resource id of the Azure Monitor workspace that gets the workers\' metrics; empty for none.')
param metricsWorkspaceId string

@description('Resource id of the scale set whose custom metrics are the depths of the queues; empty for none.')
param depthsOf string

// As internal/storage/azure/names.go makes them.
var names namesType = {
  queue: '${prefix}-jobs'
  jobs: map(range(0, max(queueShards, queueShardsTaken)), i => i == 0 ? '${prefix}-jobs' : '${prefix}-jobs-${i}')
  first: '${prefix}-jobs-first'
  onDemand: '${prefix}-jobs-ondemand'
  poison: '${prefix}-jobs-poison'
  records: '${prefix}-jobs'
  payloads: '${prefix}-payloads'
  workers: '${prefix}-workers'
  control: '${prefix}-control'
  outputs: '${prefix}-outputs'
  packages: '${prefix}-packages'
}

// The agent sends to the internet, and a network that reaches storage only
// does not let it.
var collects = monitoring && outbound == 'NatGateway'

var packageSuffix = operatingSystem == 'Windows' ? '.zip' : '.tar.gz'
var packageName = 'spotworker${packageSuffix}'

// A gallery's name must not be that of another in the subscription.
var galleryName = '${replace(prefix, '-', '_')}_${uniqueString(resourceGroup().id)}'

var ownsAccount = toLower(accountGroup) == toLower(resourceGroup().name)

// Regions that share an account have configurations of their own.
var packagesFolder = ownsAccount ? applicationVersion : '${applicationVersion}/${location}'

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  scope: resourceGroup(accountGroup)
  name: accountName
}

// One application for each kind of worker, since the configuration is part of it.
var spotApplication = {
  name: prefix
  package: packageName
  configuration: 'worker.env'
}
var onDemandApplication = {
  name: '${prefix}-ondemand'
  package: configurationIn == 'Package' ? 'spotworker-ondemand${packageSuffix}' : packageName
  configuration: 'worker-ondemand.env'
}
var packagesUrl = 'https://${accountName}.blob.${environment().suffixes.storage}/${names.packages}/'

var applications = onDemand ? [spotApplication, onDemandApplication] : [spotApplication]

// What follows names its resources by parameters and not by outputs, so that
// what-if can tell what would change in them.
module storage 'storage.bicep' = if (ownsAccount) {
  name: '${prefix}-storage'
  params: {
    location: location
    tags: tags
    accountName: accountName
    redundancy: redundancy
    names: names
    queueShards: queueShards
    dataContainers: dataContainers
    retention: retention
    firewall: storageFirewall
    subnetIds: concat([network.outputs.subnetId], otherSubnets)
    addresses: operatorAddresses
  }
}

module identities 'identities.bicep' = {
  name: '${prefix}-identities'
  params: {
    location: location
    tags: tags
    prefix: prefix
    onDemand: onDemand
  }
}

module workerRoles 'worker-roles.bicep' = {
  name: '${prefix}-worker-roles'
  scope: resourceGroup(accountGroup)
  params: {
    accountName: accountName
    names: names
    dataContainers: dataContainers
    principalId: identities.outputs.worker.principalId
    identityId: identities.outputs.worker.id
    takesOnDemand: false
  }
  dependsOn: [storage]
}

module onDemandWorkerRoles 'worker-roles.bicep' = if (onDemand) {
  name: '${prefix}-ondemand-worker-roles'
  scope: resourceGroup(accountGroup)
  params: {
    accountName: accountName
    names: names
    dataContainers: dataContainers
    principalId: identities.outputs.onDemandWorker!.principalId
    identityId: identities.outputs.onDemandWorker!.id
    takesOnDemand: true
  }
  dependsOn: [storage]
}

module operatorRoles 'operator-roles.bicep' = if (!empty(operatorId) && ownsAccount) {
  name: '${prefix}-operator-roles'
  params: {
    accountName: accountName
    names: names
    dataContainers: dataContainers
    principalId: operatorId
    principalType: operatorKind
  }
  dependsOn: [storage]
}

module galleryRoles 'gallery-roles.bicep' = {
  name: '${prefix}-gallery-roles'
  scope: resourceGroup(accountGroup)
  params: {
    accountName: accountName
    containerName: names.packages
    principalId: identities.outputs.gallery.principalId
    identityId: identities.outputs.gallery.id
  }
  dependsOn: [storage]
}

module network 'network.bicep' = {
  name: '${prefix}-network'
  params: {
    location: location
    tags: tags
    prefix: prefix
    addressPrefix: addressPrefix
    outbound: outbound
    remoteStorage: !ownsAccount
  }
}

module gallery 'gallery.bicep' = {
  name: '${prefix}-gallery'
  params: {
    location: location
    tags: tags
    galleryName: galleryName
    applicationNames: map(applications, a => a.name)
    operatingSystem: operatingSystem
    identityId: galleryRoles.outputs.identityId
  }
}

// Two modules and no loop: Azure may evaluate an output's branch that is not taken, and
// an index into an empty list is an error there.
module version 'application-version.bicep' = if (stage != 'Foundation') {
  name: '${prefix}-application-0'
  params: {
    location: location
    tags: tags
    galleryName: galleryName
    applicationName: spotApplication.name
    version: applicationVersion
    packageUrl: '${packagesUrl}${packagesFolder}/${spotApplication.package}'
    configurationUrl: configurationIn == 'Package' ? '' : '${packagesUrl}${packagesFolder}/${spotApplication.configuration}'
    packageFileName: packageName
    commands: packageCommands
    regions: [location]
  }
  dependsOn: [gallery]
}

module onDemandVersion 'application-version.bicep' = if (stage != 'Foundation' && onDemand) {
  name: '${prefix}-application-1'
  params: {
    location: location
    tags: tags
    galleryName: galleryName
    applicationName: onDemandApplication.name
    version: applicationVersion
    packageUrl: '${packagesUrl}${packagesFolder}/${onDemandApplication.package}'
    configurationUrl: configurationIn == 'Package' ? '' : '${packagesUrl}${packagesFolder}/${onDemandApplication.configuration}'
    packageFileName: packageName
    commands: packageCommands
    regions: [location]
  }
  dependsOn: [gallery]
}

module log 'monitoring.bicep' = if (collects) {
  name: '${prefix}-monitoring'
  params: {
    location: location
    tags: tags
    prefix: prefix
    operatingSystem: operatingSystem
    logFiles: logFiles
    retentionDays: logRetentionDays
    dailyQuotaGb: logDailyQuotaGb
  }
}

module logAssociation 'log-association.bicep' = if (collects) {
  name: '${prefix}-log-association'
  params: {
    location: location
    tags: tags
    prefix: prefix
    ruleId: log!.outputs.ruleId
    operatingSystem: operatingSystem
  }
}

module storageLog 'storage-log.bicep' = if (collects && logStorage && ownsAccount) {
  name: '${prefix}-storage-log'
  params: {
    accountName: accountName
    workspaceId: log!.outputs.workspaceId
  }
  dependsOn: [storage]
}

// Deployed with the VMs, so that no alert fires before there is a VM.
module noWorkersAlert 'no-workers-alert.bicep' = if (collects && stage == 'Workers') {
  name: '${prefix}-no-workers-alert'
  params: {
    location: location
    tags: tags
    prefix: prefix
    workspaceId: log!.outputs.workspaceId
    tableName: log!.outputs.tableName
    actionGroupIds: actionGroupIds
  }
}

// As the log: workers cannot push from a network that reaches storage only.
var pushesMetrics = !empty(metricsWorkspaceId) && outbound == 'NatGateway'

module metrics 'metrics.bicep' = if (pushesMetrics) {
  name: '${prefix}-metrics'
  params: {
    location: location
    tags: tags
    prefix: prefix
    metricsWorkspaceId: metricsWorkspaceId
    principalIds: concat(
      [identities.outputs.worker.principalId],
      onDemand ? [identities.outputs.onDemandWorker!.principalId] : []
    )
  }
}

module prometheusAlerts 'prometheus-alerts.bicep' = if (pushesMetrics && stage == 'Workers') {
  name: '${prefix}-prometheus-alerts'
  params: {
    location: location
    tags: tags
    prefix: prefix
    metricsWorkspaceId: metricsWorkspaceId
    actionGroupIds: actionGroupIds
  }
}

module evictionAlert 'eviction-alert.bicep' = if (monitoring) {
  name: '${prefix}-eviction-alert'
  params: {
    tags: tags
    prefix: prefix
    actionGroupIds: actionGroupIds
  }
}

// Without it a configuration that was cut off on its way would pass for whole.
var lastLine = '# end of worker.env'

var sharedSettings = union(
  {
    SPOTWORKER_ACCOUNT: accountName
    SPOTWORKER_PREFIX: prefix
    SPOTWORKER_LOG_FORMAT: 'json'
  },
  empty(dataContainers) ? {} : { SPOTWORKER_DATA_CONTAINER: join(map(dataContainers, c => c.name), ',') },
  empty(depthsOf) ? {} : { SPOTWORKER_DEPTH_METRIC: 'https://${toLower(replace(location, ' ', ''))}.monitoring.azure.com${depthsOf}/metrics' },
  pushesMetrics ? { SPOTWORKER_METRICS_PUSH: metrics!.outputs.url } : {},
  workerSettings
)
var spotSettings = union(sharedSettings, { AZURE_CLIENT_ID: identities.outputs.worker.clientId })
var onDemandSettings = onDemand
  ? union(sharedSettings, {
      AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.clientId
      SPOTWORKER_TAKE_FROM: 'on-demand'
    })
  : {}

@description('Folder in the container of packages that the package and its configuration go into.')
output packagesFolder string = packagesFolder

@description('Containers with data that workers may only read. An earlier deployment may have let them write.')
output readOnlyContainerIds string[] = map(
  filter(dataContainers, c => c.access == 'Read'),
  c => '${account.id}/blobServices/default/containers/${c.name}'
)

@description('Object ids of the workers\' identities.')
output workerPrincipalIds string[] = concat(
  [identities.outputs.worker.principalId],
  onDemand ? [identities.outputs.onDemandWorker!.principalId] : []
)

@description('Names of queues and containers.')
output names namesType = names

@description('Resource id of the subnet.')
output subnetId string = network.outputs.subnetId

@description('Resource id of the workers\' identity, once it has its roles.')
output workerIdentityId string = workerRoles.outputs.identityId

@description('Resource id of the on-demand workers\' identity, once it has its roles; empty where there are none.')
output onDemandIdentityId string = onDemand ? onDemandWorkerRoles!.outputs.identityId : ''

@description('Resource id of the workers\' application version; empty before there is one.')
output packageId string = stage == 'Foundation' ? '' : version!.outputs.versionId

@description('Resource id of the on-demand workers\' application version; empty where there is none.')
output onDemandPackageId string = stage != 'Foundation' && onDemand ? onDemandVersion!.outputs.versionId : ''

@description('Whether logs are collected, from agents that the policy associates.')
output collectsLogs bool = collects ? !empty(logAssociation!.outputs.assignmentId) : false

@description('Lines of the workers\' configuration file.')
output workerConfiguration string[] = concat(map(items(spotSettings), s => '${s.key}=${s.value}'), [lastLine])

@description('Lines of the on-demand workers\' configuration file; none where there are none.')
output onDemandConfiguration string[] = onDemand
  ? concat(map(items(onDemandSettings), s => '${s.key}=${s.value}'), [lastLine])
  : []
