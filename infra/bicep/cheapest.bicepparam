// As cheap as it gets: one region, one or two VMs of one size, no gateway, no
// log collection. VMs reach storage and nothing else.

using 'main.bicep'

param prefix = 'spotworker'
param operatorId = readEnvironmentVariable('OPERATOR_ID', '')
param sshPublicKey = readEnvironmentVariable('SSH_PUBLIC_KEY', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

// Who else than the VMs gets to the storage account, besides having roles there.
param operatorAddresses = empty(readEnvironmentVariable('OPERATOR_ADDRESSES', ''))
  ? []
  : split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')

param dataContainers = [
  { name: 'archive', access: 'Read' }
]

param outbound = 'StorageOnly'
param vmSizes = ['Standard_D2as_v5']
param minInstances = 1
param maxInstances = 2
param capacity = int(readEnvironmentVariable('CAPACITY', '1'))

// The portal still shows evictions.
param monitoring = true
