// A fleet: forty Spot VMs over five sizes and three zones, and two regular ones.

using 'fleet.bicep'

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
param spotCapacity = int(readEnvironmentVariable('CAPACITY', '40'))
param regularCapacity = 2
