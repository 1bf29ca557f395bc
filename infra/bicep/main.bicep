// The spotworker on a scale set of Spot VMs: everything it needs, in one
// resource group. docs/deploy.md leads through it step by step.

targetScope = 'resourceGroup'

import {
  configurationPlaceType
  dataContainerType
  imageType
  operatingSystemType
  outboundType
  packageCommandsType
  principalKindType
  retentionType
  stageType
  timeType
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

@description('How VMs reach the internet: NatGateway, which is paid by the hour and the gigabyte; or StorageOnly, which is free, and leaves VMs without updates of their packages, without log collection, and the number of VMs to the first queue alone, without -first.')
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

@description('Commands of the package for Windows.')
param windowsPackageCommands packageCommandsType = {
  install: '%SystemRoot%\\System32\\tar.exe -xf spotworker.zip && .\\worker.exe package install'
  update: '%SystemRoot%\\System32\\tar.exe -xf spotworker.zip && .\\worker.exe package update'
  remove: 'if exist worker.exe (.\\worker.exe package remove) else if exist "%ProgramData%\\spotworker\\remove.cmd" (copy /y "%ProgramData%\\spotworker\\remove.cmd" remove.cmd >nul && .\\remove.cmd)'
}

@description('Where VMs get the worker\'s configuration from: a Blob beside the package, which the gallery reads with its identity; or, should that be refused, the Package, for which docs/deploy.md has the command.')
param configurationIn configurationPlaceType = 'Blob'

@description('Whether a VM that cannot install the package fails the deployment. True for the first deployment of a version, as tools/deploy.sh has it. False otherwise, since Azure does not repair a VM that failed so.')
param failOnInstall bool = false

@description('Whether jobs may be commands that their messages name (docs/SECURITY.md): whoever may put jobs then runs anything on the VMs, as the users of programs.')
param commands bool = false

@description('More settings of all workers, by the names of their environment variables, such as { SPOTWORKER_CONCURRENCY: \'4\' }. No secrets: every user of a VM can read them.')
param workerSettings { *: string } = {}

@description('Port on the loopback interface on which the worker serves its health: 8810 for the first of a VM, unless workerSettings have SPOTWORKER_LISTEN.')
@minValue(1024)
@maxValue(65535)
param healthPort int = 8810

// VMs.

@description('Sizes to choose from: one to five, with the same architecture, disk interface and kind of local disk. Not of the B series, which is not offered as Spot.')
@minLength(1)
@maxLength(5)
param vmSizes string[] = ['Standard_D2as_v5']

@description('How Azure chooses between several sizes: CapacityOptimized, which is evicted least, or LowestPrice.')
param allocationStrategy 'LowestPrice' | 'CapacityOptimized' = 'CapacityOptimized'

@description('Priority of the VMs. SpotPlus is the next generation of Spot: still evicted and still discounted, said to run longer, and not available in every region.')
param priority 'Spot' | 'SpotPlus' = 'Spot'

@description('What an eviction does to a VM: Delete it, or Deallocate it, which keeps its disk and its share of the quota, which both still cost, and excludes autoscale.')
param evictionPolicy 'Delete' | 'Deallocate' = 'Delete'

@description('Highest price of a VM in US dollars an hour, such as 0.05. With -1 the price never evicts, and never exceeds that of a regular VM. To change it, VMs must be deallocated first, or replaced.')
param maxPrice string = '-1'

@description('Without autoscale: whether Azure is asked to restore VMs that it evicted for lack of capacity (spotRestorePolicy). Documented for Flexible scale sets, and reported as refused there with InvalidParameter; a fleet holds its number without it.')
param restoreEvicted bool = false

@description('With restoreEvicted: how long Azure tries, as an ISO 8601 duration of PT15M to PT2H.')
param restoreTimeout string = 'PT1H'

@description('Availability zones to spread the VMs over, such as [\'1\', \'2\', \'3\']. None leaves the choice to Azure.')
param zones string[] = []

@description('Priority Balanced: number of regular VMs before the first Spot VM. A change affects VMs made after it.')
@minValue(0)
param baseRegularCount int = 0

@description('Priority Balanced: share of regular VMs above that, in percent. A change affects VMs made after it.')
@minValue(0)
@maxValue(100)
param regularPercentage int = 0

@description('How running VMs get a new version or size: Rolling, a fifth at a time; Automatic, all at once; Manual, only when an operator upgrades them. Their jobs are handed over in any case.')
param upgradeMode 'Manual' | 'Automatic' | 'Rolling' = 'Rolling'

@description('Whether scheduled events are published to Event Grid and Resource Graph as well, for monitoring from outside. Not in every region.')
param publishEvents bool = false

@description('What the VMs run. It cannot be changed later: give another prefix then. Windows: docs/deploy.md.')
param operatingSystem operatingSystemType = 'Linux'

@description('Image of the VMs: Linux with systemd, of generation 2.')
param image imageType = {
  publisher: 'Canonical'
  offer: 'ubuntu-24_04-lts'
  sku: 'server'
  version: 'latest'
}

@description('Image of the VMs that run Windows: Windows Server 2019 or later, of generation 2. Core has no desktop, and starts sooner.')
param windowsImage imageType = {
  publisher: 'MicrosoftWindowsServer'
  offer: 'WindowsServer'
  sku: '2022-datacenter-azure-edition-core'
  version: 'latest'
}

@description('Kind of the VMs\' disks. Nothing of worth is on them.')
param diskType 'Standard_LRS' | 'StandardSSD_LRS' | 'Premium_LRS' = 'StandardSSD_LRS'

@description('Name of the account on the VMs.')
param adminUsername string = 'azureuser'

@description('Public key that this account signs in with, on Linux. Azure wants one, though no port is open for it.')
param sshPublicKey string

@description('Password of this account, on Windows: 12 to 123 characters of three kinds. Azure wants one, though no port is open for it. Give a random one, and give the same one again.')
@secure()
param adminPassword string = ''

// How many.

@description('Whether the number of VMs follows the depth of the queue. Only with policy Delete.')
param autoscale bool = true

@description('Fewest VMs; without autoscale, their number.')
@minValue(1)
@maxValue(1000)
param minInstances int = 1

@description('Most VMs, with autoscale.')
@minValue(1)
@maxValue(1000)
param maxInstances int = 2

@description('With autoscale: times of the week at which there are other numbers of VMs, such as none in office hours, or more at the weekend: docs/deploy.md.')
@maxLength(9)
param times timeType[] = []

@description('Number of VMs that this deployment sets. With autoscale give the number there is, as tools/deploy.sh does: fewer would delete busy VMs.')
@minValue(0)
@maxValue(1000)
param capacity int = minInstances

@description('Messages for each VM above which there are more VMs. The depth counts messages in work, so it should be a few times the number of jobs at once.')
@minValue(2)
param jobsPerInstance int = 20

// Queues.

@description('Over how many queues jobs are put: more than one where 2,000 messages a second are not enough.')
@minValue(1)
@maxValue(16)
param queueShards int = 1

@description('From how many queues jobs are taken, if that is more than queueShards: queues that are to become empty before they are left.')
@minValue(1)
@maxValue(16)
param queueShardsTaken int = queueShards

var jobQueues = max(queueShards, queueShardsTaken)

// Priority Swap.

@description('Priority Swap: whether VMs of regular priority finish the jobs that Spot VMs moved to the on-demand queue.')
param onDemand bool = false

@description('Size of these VMs.')
param onDemandVmSize string = vmSizes[0]

@description('Fewest of these VMs; with 0 there are some only while the on-demand queue has messages. At least 1 finds jobs whose deadlines near while no Spot VM is alive.')
@minValue(0)
@maxValue(1000)
param onDemandMinInstances int = 0

@description('Most of these VMs. It bounds what they cost.')
@minValue(1)
@maxValue(1000)
param onDemandMaxInstances int = 2

@description('Number of these VMs that this deployment sets. As with capacity, give the number there is.')
@minValue(0)
@maxValue(1000)
param onDemandCapacity int = onDemandMinInstances

@description('Interruptions after which a Spot VM moves a job to the on-demand queue.')
@minValue(1)
param moveAfter int = 3

@description('How long a moved job waits for one of these VMs. A Spot VM that loses a job with a deadline moves it if it may be late; 0s moves none for that.')
@minLength(2)
@maxLength(16)
param changeover string = '10m'

// Log and alerts.

@description('Whether the workers\' log is collected and alerts are set. With outbound StorageOnly there is the alert on evictions alone.')
param monitoring bool = true

@description('Whether writes and deletions in the storage account are logged too, with the address they came from. A line for each call, so it counts towards logDailyQuotaGb.')
param logStorage bool = true

@description('Files on the VMs that hold the worker\'s log, one JSON object a line.')
param logFiles string[] = ['/var/log/spotworker/*.log']

@description('Files on VMs that run Windows that hold the worker\'s log.')
param windowsLogFiles string[] = ['C:\\ProgramData\\spotworker\\logs\\*.log']

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

// Azure would take this combination and then never scale.
var scales = autoscale && evictionPolicy == 'Deallocate'
  ? fail('autoscale works with evictionPolicy Delete only: set autoscale to false, and Azure starts evicted VMs again as capacity allows; or evictionPolicy to Delete')
  : autoscale

// They would be taken and have no effect.
var scaleTimes = !autoscale && !empty(times) ? fail('times need autoscale: set it to true, or times to []') : times

// Workers that reach storage alone cannot publish the depths of queues.
var depthsOf = scales && outbound == 'NatGateway' ? resourceId('Microsoft.Compute/virtualMachineScaleSets', '${prefix}-spot') : ''

var windows = operatingSystem == 'Windows' && length(adminPassword) < 12
  ? fail('Windows needs adminPassword, of 12 to 123 characters of three kinds: set ADMIN_PASSWORD to a random one')
  : operatingSystem == 'Windows'

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
    operatingSystem: operatingSystem
    packageCommands: windows ? windowsPackageCommands : packageCommands
    configurationIn: configurationIn
    queueShards: queueShards
    queueShardsTaken: queueShardsTaken
    onDemand: onDemand
    workerSettings: union(
      onDemand ? { SPOTWORKER_CHANGEOVER: changeover, SPOTWORKER_MOVE_AFTER: string(moveAfter) } : {},
      commands ? { SPOTWORKER_COMMANDS: 'true' } : {},
      workerSettings
    )
    monitoring: monitoring
    logStorage: logStorage
    logFiles: windows ? windowsLogFiles : logFiles
    logRetentionDays: logRetentionDays
    logDailyQuotaGb: logDailyQuotaGb
    actionGroupIds: actionGroupIds
    metricsWorkspaceId: metricsWorkspaceId
    depthsOf: depthsOf
  }
}

module spot 'modules/spot-scale-set.bicep' = if (stage == 'Workers') {
  name: '${prefix}-spot'
  params: {
    location: location
    tags: tags
    scaleSetName: '${prefix}-spot'
    zones: zones
    subnetId: foundation.outputs.subnetId
    identityId: foundation.outputs.workerIdentityId
    packageId: foundation.outputs.packageId
    failOnInstall: failOnInstall
    vmSizes: vmSizes
    allocationStrategy: allocationStrategy
    priority: priority
    evictionPolicy: evictionPolicy
    maxPrice: maxPrice
    restore: restoreEvicted && !autoscale
    restoreTimeout: restoreTimeout
    baseRegularCount: baseRegularCount
    regularPercentage: regularPercentage
    capacity: capacity
    upgradeMode: upgradeMode
    publishEvents: publishEvents
    operatingSystem: operatingSystem
    image: windows ? windowsImage : image
    diskType: diskType
    adminUsername: adminUsername
    sshPublicKey: sshPublicKey
    adminPassword: adminPassword
    healthPort: healthPort
    sendLogs: foundation.outputs.collectsLogs
  }
}

module spotAutoscale 'modules/autoscale.bicep' = if (stage == 'Workers' && scales) {
  name: '${prefix}-spot-autoscale'
  params: {
    location: location
    tags: tags
    scaleSetName: '${prefix}-spot'
    accountName: accountName
    accountGroup: accountGroup
    queueNames: foundation.outputs.names.jobs
    depthsOf: depthsOf
    publisherIds: empty(depthsOf) ? [] : foundation.outputs.workerPrincipalIds
    minInstances: minInstances
    maxInstances: maxInstances
    jobsPerInstance: max(jobsPerInstance / jobQueues, 2)
    times: scaleTimes
  }
  dependsOn: [spot]
}

module regular 'modules/regular-scale-set.bicep' = if (stage == 'Workers' && onDemand) {
  name: '${prefix}-ondemand'
  params: {
    location: location
    tags: tags
    scaleSetName: '${prefix}-ondemand'
    zones: zones
    subnetId: foundation.outputs.subnetId
    identityId: foundation.outputs.onDemandIdentityId
    packageId: foundation.outputs.onDemandPackageId
    failOnInstall: failOnInstall
    vmSize: onDemandVmSize
    capacity: onDemandCapacity
    upgradeMode: upgradeMode
    operatingSystem: operatingSystem
    image: windows ? windowsImage : image
    diskType: diskType
    adminUsername: adminUsername
    sshPublicKey: sshPublicKey
    adminPassword: adminPassword
    healthPort: healthPort
    sendLogs: foundation.outputs.collectsLogs
  }
}

module regularAutoscale 'modules/autoscale.bicep' = if (stage == 'Workers' && onDemand) {
  name: '${prefix}-ondemand-autoscale'
  params: {
    location: location
    tags: tags
    scaleSetName: '${prefix}-ondemand'
    accountName: accountName
    accountGroup: accountGroup
    queueNames: [foundation.outputs.names.onDemand]
    depthsOf: depthsOf
    publisherIds: []
    minInstances: onDemandMinInstances
    maxInstances: onDemandMaxInstances
    jobsPerInstance: jobsPerInstance
    times: []
  }
  dependsOn: [regular]
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

@description('Name of the scale set of Spot VMs.')
output scaleSetName string = '${prefix}-spot'

@description('Lines of the workers\' configuration file, to be uploaded as worker.env beside the package.')
output workerConfiguration string[] = foundation.outputs.workerConfiguration

@description('Lines of the on-demand workers\' configuration file, to be uploaded as worker-ondemand.env; none where there are none.')
output onDemandConfiguration string[] = foundation.outputs.onDemandConfiguration
