// The spotworker on an Azure Compute Fleet, for those who outgrow one scale
// set: Spot VMs of many sizes and in all zones, held at a target by Azure,
// which replaces an evicted VM by one of any size that there is capacity for;
// and a floor of regular VMs. The rest is what main.bicep deploys.
//
// A fleet does not follow the depth of the queue: its target is a parameter, which spotctl
// scale changes. Only that and the sizes of a running fleet can be changed, so each version
// of the application has a fleet of its own, and tools/deploy.sh deletes the older one. A
// fleet repairs no VMs: nothing replaces one that could not install the package.

targetScope = 'resourceGroup'

import {
  configurationPlaceType
  dataContainerType
  imageType
  outboundType
  packageCommandsType
  principalKindType
  retentionType
  stageType
} from 'modules/types.bicep'

// Where and under what name.

@description('Region.')
param location string = resourceGroup().location

@description('Start of the names of all resources, and of queues and containers. A storage account that two deployments share needs two of them. 3 to 30 of a-z, 0-9 and single dashes.')
@minLength(3)
@maxLength(30)
param prefix string = 'spotworker'

@description('Tags of every resource.')
param tags { *: string } = {}

@description('How much to deploy: Foundation, Application or Workers. What an earlier deployment created beyond that stays.')
param stage stageType = 'Workers'

// Storage.

@description('Name of the storage account: 3 to 24 of a-z and 0-9, the only one of that name in all of Azure.')
@minLength(3)
@maxLength(24)
param accountName string = '${take(replace(prefix, '-', ''), 11)}${uniqueString(resourceGroup().id)}'

@description('Resource group of the storage account, for a region that shares the account of another one: docs/deploy.md.')
param accountGroup string = resourceGroup().name

@description('Whether only the VMs, operatorAddresses and otherSubnets may access the account. Roles are required in any case.')
param storageFirewall bool = true

@description('Public IPv4 addresses, or ranges of them such as 203.0.113.0/28, from which packages are uploaded, jobs put and results read.')
param operatorAddresses string[] = []

@description('Resource ids of subnets of other deployments that may access the account.')
param otherSubnets string[] = []

@description('Resource ids of the subnets of further regions that the account lets in: tools/deploy.sh gives those that it has added.')
param regionSubnets string[] = []

@description('How often the account keeps the data: Standard_LRS in one zone, Standard_ZRS in three.')
param redundancy 'Standard_LRS' | 'Standard_ZRS' = 'Standard_LRS'

@description('Days after the last write until blobs are deleted. As long as a record is there, its job id has one outcome.')
param retention retentionType = {
  records: 30
  payloads: 180
  workers: 7
}

@description('Containers with the data that jobs work on, and what jobs may do there. With none, the package must contain handlers of its own; workers without any kind of job do not start.')
param dataContainers dataContainerType[] = []

@description('Object id of the person, group or service principal that puts jobs, reads results, handles dead-lettered jobs and uploads packages. Empty for none; then only the workers can access the data.')
param operatorId string = ''

@description('What kind of principal operatorId is.')
param operatorKind principalKindType = 'User'

// Network.

@description('Address range of the network. It needs an address for each VM and five more.')
param addressPrefix string = '10.42.0.0/22'

@description('How VMs reach the internet: NatGateway, which is paid by the hour and the gigabyte; or StorageOnly, which is free, and leaves VMs without updates of their packages and without log collection.')
param outbound outboundType = 'NatGateway'

// Package and settings.

@description('Version of the VM application: three numbers with dots between them. A version never changes; another package or another configuration is another version.')
@minLength(5)
param applicationVersion string = '1.0.0'

@description('Commands of the package.')
param packageCommands packageCommandsType = {
  install: 'tar -xzf spotworker.tar.gz && sh ./install.sh'
  update: 'tar -xzf spotworker.tar.gz && sh ./update.sh'
  remove: 'for script in ./remove.sh /opt/spotworker/current/remove.sh; do [ ! -f $script ] || exec sh $script; done'
}

@description('Where VMs get the worker\'s configuration from: a Blob beside the package, which the gallery reads with its identity; or, should that be refused, the Package, for which docs/deploy.md has the command.')
param configurationIn configurationPlaceType = 'Blob'

@description('Whether jobs may be commands that their messages name (docs/SECURITY.md): whoever may put jobs then runs anything on the VMs, as the users of programs.')
param commands bool = false

@description('More settings of all workers, by the names of their environment variables, such as { SPOTWORKER_CONCURRENCY: \'4\' }. No secrets: every user of a VM can read them.')
param workerSettings { *: string } = {}

@description('Port on the loopback interface on which the worker serves its health: 8810 for the first of a VM, unless workerSettings have SPOTWORKER_LISTEN.')
@minValue(1024)
@maxValue(65535)
param healthPort int = 8810

// VMs.

@description('Sizes to choose from, at least three, with the same architecture and disk interface. Not of the B series, which is not offered as Spot.')
@minLength(3)
@maxLength(15)
param vmSizes string[] = [
  'Standard_D2as_v5'
  'Standard_D2s_v5'
  'Standard_D2ads_v5'
  'Standard_D2ds_v5'
  'Standard_E2as_v5'
]

@description('Availability zones to spread the VMs over. None leaves the choice to Azure.')
param zones string[] = ['1', '2', '3']

@description('Target number of Spot VMs. Evicted ones are replaced until it is met. Give the number there is, as tools/deploy.sh does.')
@minValue(0)
@maxValue(10000)
param spotCapacity int = 10

@description('How Azure chooses between sizes and zones: PriceCapacityOptimized weighs both, CapacityOptimized is evicted least, LowestPrice costs least.')
param allocationStrategy 'PriceCapacityOptimized' | 'CapacityOptimized' | 'LowestPrice' = 'PriceCapacityOptimized'

@description('Highest price of a VM in US dollars an hour, such as 0.05. With -1 the price never evicts, and never exceeds that of a regular VM.')
param maxPrice string = '-1'

@description('Number of VMs of regular priority: the floor below which no eviction takes the fleet.')
@minValue(0)
@maxValue(10000)
param regularCapacity int = 1

@description('Image of the VMs: Linux with systemd, of generation 2.')
param image imageType = {
  publisher: 'Canonical'
  offer: 'ubuntu-24_04-lts'
  sku: 'server'
  version: 'latest'
}

@description('Kind of the VMs\' disks. Nothing of worth is on them.')
param diskType 'Standard_LRS' | 'StandardSSD_LRS' | 'Premium_LRS' = 'StandardSSD_LRS'

@description('Name of the account on the VMs.')
param adminUsername string = 'azureuser'

@description('Public key that this account signs in with. Azure wants one, though no port is open for it.')
param sshPublicKey string

// Queues.

@description('Over how many queues jobs are put: more than one where 2,000 messages a second are not enough.')
@minValue(1)
@maxValue(16)
param queueShards int = 1

@description('From how many queues jobs are taken, if that is more than queueShards: queues that are to become empty before they are left.')
@minValue(1)
@maxValue(16)
param queueShardsTaken int = queueShards

// Log and alerts.

@description('Whether the workers\' log is collected and alerts are set. With outbound StorageOnly there is the alert on evictions alone.')
param monitoring bool = true

@description('Whether writes and deletions in the storage account are logged too, with the address they came from. A line for each call, so it counts towards logDailyQuotaGb.')
param logStorage bool = true

@description('Files on the VMs that hold the worker\'s log, one JSON object a line.')
param logFiles string[] = ['/var/log/spotworker/*.log']

@description('Days until log lines are deleted. The first 30 cost nothing.')
@minValue(4)
@maxValue(730)
param logRetentionDays int = 30

@description('Gigabytes of log a day after which lines are dropped until the next day; -1 for no end. It bounds what logs cost.')
param logDailyQuotaGb int = 1

@description('Resource ids of the action groups that alerts are sent to. Without one they are seen in the portal only.')
param actionGroupIds string[] = []

@description('Resource id of an Azure Monitor workspace in this region that gets the workers\' metrics every 15 s, and alerts over them; empty for none. It needs a gateway.')
param metricsWorkspaceId string = ''

module foundation 'modules/foundation.bicep' = {
  name: '${prefix}-foundation'
  params: {
    location: location
    tags: tags
    prefix: prefix
    stage: stage
    accountName: accountName
    accountGroup: accountGroup
    storageFirewall: storageFirewall
    operatorAddresses: operatorAddresses
    otherSubnets: union(otherSubnets, regionSubnets)
    redundancy: redundancy
    retention: retention
    dataContainers: dataContainers
    operatorId: operatorId
    operatorKind: operatorKind
    addressPrefix: addressPrefix
    outbound: outbound
    applicationVersion: applicationVersion
    operatingSystem: 'Linux'
    packageCommands: packageCommands
    configurationIn: configurationIn
    onDemand: false
    queueShards: queueShards
    queueShardsTaken: queueShardsTaken
    workerSettings: union(commands ? { SPOTWORKER_COMMANDS: 'true' } : {}, workerSettings)
    monitoring: monitoring
    logStorage: logStorage
    logFiles: logFiles
    logRetentionDays: logRetentionDays
    logDailyQuotaGb: logDailyQuotaGb
    actionGroupIds: actionGroupIds
    metricsWorkspaceId: metricsWorkspaceId
    depthsOf: ''
  }
}

var fleetName = '${prefix}-fleet-${replace(applicationVersion, '.', '-')}'

module fleet 'modules/fleet.bicep' = if (stage == 'Workers') {
  name: '${prefix}-fleet'
  params: {
    location: location
    tags: tags
    fleetName: fleetName
    zones: zones
    subnetId: foundation.outputs.subnetId
    identityId: foundation.outputs.workerIdentityId
    packageId: foundation.outputs.packageId
    vmSizes: vmSizes
    spotCapacity: spotCapacity
    allocationStrategy: allocationStrategy
    maxPrice: maxPrice
    regularCapacity: regularCapacity
    image: image
    diskType: diskType
    adminUsername: adminUsername
    sshPublicKey: sshPublicKey
    healthPort: healthPort
    sendLogs: foundation.outputs.collectsLogs
  }
}

@description('Name of the storage account, for --account.')
output accountName string = accountName

@description('Folder in that container.')
output packagesFolder string = foundation.outputs.packagesFolder

@description('Containers that workers may only read, and their identities: tools/deploy.sh removes what an earlier deployment granted beyond that.')
output readOnlyContainerIds string[] = foundation.outputs.readOnlyContainerIds

@description('Object ids of the workers\' identities.')
output workerPrincipalIds string[] = foundation.outputs.workerPrincipalIds

@description('Container to upload packages to.')
output packagesContainer string = foundation.outputs.names.packages

@description('Name of the fleet.')
output fleetName string = fleetName

@description('Lines of the workers\' configuration file, to be uploaded as worker.env beside the package.')
output workerConfiguration string[] = foundation.outputs.workerConfiguration
