// For work that has to be done by a certain time: a floor of regular VMs below
// the Spot VMs, five sizes and three zones to find capacity in, regular VMs
// for jobs that are interrupted too often, logs and alerts.

using 'main.bicep'

param prefix = 'spotworker'
param operatorId = readEnvironmentVariable('OPERATOR_ID', '')
param sshPublicKey = readEnvironmentVariable('SSH_PUBLIC_KEY', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

// Who else than the VMs gets to the storage account, besides having roles there.
param operatorAddresses = empty(readEnvironmentVariable('OPERATOR_ADDRESSES', ''))
  ? []
  : split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')

param redundancy = 'Standard_ZRS'
param dataContainers = [
  { name: 'archive', access: 'Read' }
]

// Two sizes of the D family and three with more memory, all with two cores, an
// x64 processor, a SCSI disk and no local one.
param vmSizes = [
  'Standard_D2as_v5'
  'Standard_D2s_v5'
  'Standard_D2s_v4'
  'Standard_E2as_v5'
  'Standard_E2s_v5'
]
param allocationStrategy = 'CapacityOptimized'
param zones = ['1', '2', '3']

// Delete, so that the number of VMs follows the queue, and nothing is paid for
// a VM that is gone. With Deallocate its disk and quota would stay taken, and
// Azure would start the same VM again as soon as its size has capacity: worth
// it for who is short of images or starts slowly, which a worker does not.
param evictionPolicy = 'Delete'
param maxPrice = '-1'

// Priority Balanced: two regular VMs first, then one in ten.
param baseRegularCount = 2
param regularPercentage = 10

param autoscale = true
param minInstances = 3
param maxInstances = 60
param capacity = int(readEnvironmentVariable('CAPACITY', '3'))
param jobsPerInstance = 20

// Priority Swap: after three interruptions, or when its deadline is at risk, a
// regular VM finishes the job.
param onDemand = true
param moveAfter = 3
param onDemandVmSize = 'Standard_D2as_v5'
param onDemandMaxInstances = 4
param onDemandCapacity = int(readEnvironmentVariable('ONDEMAND_CAPACITY', '0'))

param outbound = 'NatGateway'
param monitoring = true
param logDailyQuotaGb = 5
param actionGroupIds = empty(readEnvironmentVariable('ACTION_GROUP_ID', ''))
  ? []
  : [readEnvironmentVariable('ACTION_GROUP_ID', '')]
