// Everything that VMs stand on, whoever makes them: storage, identities with
// their roles, the network, the package, the log.

import {
  dataContainerType
  namesType
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

@description('How much is made.')
param stage stageType

@description('Name of the storage account.')
param accountName string

@description('How often the account keeps the data.')
param redundancy 'Standard_LRS' | 'Standard_ZRS'

@description('How long blobs are kept.')
param retention retentionType

@description('Containers with the data that jobs work on.')
param dataContainers dataContainerType[]

@description('Object id of who puts jobs and reads results; empty for nobody.')
param operatorId string

@description('What kind of principal that is.')
param operatorKind principalKindType

@description('Address range of the network.')
param addressPrefix string

@description('How VMs reach the internet.')
param outbound outboundType

@description('Version of the VM application.')
param applicationVersion string

@description('Commands of the package.')
param packageCommands packageCommandsType

@description('Whether there are VMs of regular priority for the on-demand queue.')
param onDemand bool

@description('Settings of all workers, by the names of their environment variables.')
param workerSettings { *: string }

@description('Whether the worker\'s log is collected and alerts are set.')
param monitoring bool

@description('Files that hold the worker\'s log.')
param logFiles string[]

@description('Days until log lines are deleted.')
param logRetentionDays int

@description('Gigabytes of log a day after which lines are dropped; -1 for no end.')
param logDailyQuotaGb int

@description('Resource ids of the action groups that alerts are sent to.')
param actionGroupIds string[]

@description('Messages that go to the poison queue within an hour before that is told.')
param poisonPerHour int

@description('Hours after it was put until a job that was started and has not ended is told of.')
param oldestJobHours int

// As internal/azure/names.go makes them.
var names namesType = {
  queue: '${prefix}-jobs'
  onDemand: '${prefix}-jobs-ondemand'
  poison: '${prefix}-jobs-poison'
  records: '${prefix}-jobs'
  payloads: '${prefix}-payloads'
  workers: '${prefix}-workers'
  packages: '${prefix}-packages'
}

// The agent sends to the internet, and a network that reaches storage only
// does not let it.
var collects = monitoring && outbound == 'NatGateway'

var packageName = 'spotworker.tar.gz'

// One application for each kind of worker, since the configuration is part of it.
var spotApplication = {
  name: prefix
  configuration: 'worker.env'
}
var onDemandApplication = {
  name: '${prefix}-ondemand'
  configuration: 'worker-ondemand.env'
}
var applications = onDemand ? [spotApplication, onDemandApplication] : [spotApplication]

module storage 'storage.bicep' = {
  name: '${prefix}-storage'
  params: {
    location: location
    tags: tags
    accountName: accountName
    redundancy: redundancy
    names: names
    dataContainers: dataContainers
    retention: retention
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
  params: {
    accountName: storage.outputs.accountName
    names: names
    dataContainers: dataContainers
    principalId: identities.outputs.worker.principalId
    identityId: identities.outputs.worker.id
    takesOnDemand: false
  }
}

module onDemandWorkerRoles 'worker-roles.bicep' = if (onDemand) {
  name: '${prefix}-ondemand-worker-roles'
  params: {
    accountName: storage.outputs.accountName
    names: names
    dataContainers: dataContainers
    principalId: identities.outputs.onDemandWorker!.principalId
    identityId: identities.outputs.onDemandWorker!.id
    takesOnDemand: true
  }
}

module operatorRoles 'operator-roles.bicep' = if (!empty(operatorId)) {
  name: '${prefix}-operator-roles'
  params: {
    accountName: storage.outputs.accountName
    names: names
    dataContainers: dataContainers
    principalId: operatorId
    principalType: operatorKind
  }
}

module galleryRoles 'gallery-roles.bicep' = {
  name: '${prefix}-gallery-roles'
  params: {
    accountName: storage.outputs.accountName
    containerName: names.packages
    principalId: identities.outputs.gallery.principalId
    identityId: identities.outputs.gallery.id
  }
}

module network 'network.bicep' = {
  name: '${prefix}-network'
  params: {
    location: location
    tags: tags
    prefix: prefix
    addressPrefix: addressPrefix
    outbound: outbound
  }
}

module gallery 'gallery.bicep' = {
  name: '${prefix}-gallery'
  params: {
    location: location
    tags: tags
    galleryName: replace(prefix, '-', '_')
    applicationNames: map(applications, a => a.name)
    identityId: galleryRoles.outputs.identityId
  }
}

module versions 'application-version.bicep' = [
  for (application, i) in (stage == 'Foundation' ? [] : applications): {
    name: '${prefix}-application-${i}'
    params: {
      location: location
      tags: tags
      galleryName: gallery.outputs.galleryName
      applicationName: gallery.outputs.applicationNames[i]
      version: applicationVersion
      packageUrl: '${storage.outputs.packagesUrl}${applicationVersion}/${packageName}'
      configurationUrl: '${storage.outputs.packagesUrl}${applicationVersion}/${application.configuration}'
      packageFileName: packageName
      commands: packageCommands
      regions: [location]
    }
  }
]

module log 'monitoring.bicep' = if (collects) {
  name: '${prefix}-monitoring'
  params: {
    location: location
    tags: tags
    prefix: prefix
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
  }
}

module alerts 'alerts.bicep' = if (collects) {
  name: '${prefix}-alerts'
  params: {
    location: location
    tags: tags
    prefix: prefix
    workspaceId: log!.outputs.workspaceId
    tableName: log!.outputs.tableName
    actionGroupIds: actionGroupIds
    poisonPerHour: poisonPerHour
    oldestJobHours: oldestJobHours
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

// Containers that handlers may store results in.
var written = filter(dataContainers, c => c.access == 'ReadWrite')

var sharedSettings = union(
  {
    SPOTWORKER_ACCOUNT: storage.outputs.accountName
    SPOTWORKER_PREFIX: prefix
    SPOTWORKER_LOG_FORMAT: 'json'
  },
  empty(dataContainers) ? {} : { SPOTWORKER_DATA_CONTAINER: join(map(dataContainers, c => c.name), ',') },
  empty(written) ? {} : { SPOTWORKER_OUTPUT_CONTAINER: join(map(written, c => c.name), ',') },
  workerSettings
)
var spotSettings = union(sharedSettings, { AZURE_CLIENT_ID: identities.outputs.worker.clientId })
var onDemandSettings = onDemand
  ? union(sharedSettings, {
      AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.clientId
      SPOTWORKER_TAKE_FROM: 'on-demand'
    })
  : {}

@description('Name of the storage account.')
output accountName string = storage.outputs.accountName

@description('Resource id of the storage account.')
output accountId string = storage.outputs.accountId

@description('Names of queues and containers.')
output names namesType = names

@description('Resource id of the subnet.')
output subnetId string = network.outputs.subnetId

@description('Resource id of the workers\' identity, once it has its roles.')
output workerIdentityId string = workerRoles.outputs.identityId

@description('Resource id of the on-demand workers\' identity, once it has its roles; empty where there are none.')
output onDemandIdentityId string = onDemand ? onDemandWorkerRoles!.outputs.identityId : ''

@description('Resource id of the workers\' application version; empty before there is one.')
output packageId string = stage == 'Foundation' ? '' : versions[0].outputs.versionId

@description('Resource id of the on-demand workers\' application version; empty where there is none.')
output onDemandPackageId string = stage == 'Foundation' || !onDemand ? '' : versions[1].outputs.versionId

@description('Whether logs are collected, from agents that the policy associates.')
output collectsLogs bool = collects ? !empty(logAssociation!.outputs.assignmentId) : false

@description('Lines of the workers\' configuration file.')
output workerConfiguration string[] = map(items(spotSettings), s => '${s.key}=${s.value}')

@description('Lines of the on-demand workers\' configuration file; none where there are none.')
output onDemandConfiguration string[] = map(items(onDemandSettings), s => '${s.key}=${s.value}')
