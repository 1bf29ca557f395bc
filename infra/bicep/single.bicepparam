// One Spot VM that reaches storage and nothing else.

using 'single.bicep'

param prefix = 'spotworker'
param operatorId = readEnvironmentVariable('OPERATOR_ID', '')
param sshPublicKey = readEnvironmentVariable('SSH_PUBLIC_KEY', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

// Who else than the VM gets to the storage account, besides having roles there.
param operatorAddresses = empty(readEnvironmentVariable('OPERATOR_ADDRESSES', ''))
  ? []
  : split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')

param dataContainers = [
  { name: 'archive', access: 'Read' }
]
param vmSize = 'Standard_D2as_v5'
