// Workers on Windows, for jobs whose programs need it: two sizes, autoscale, log and
// event log collected. docs/deploy.md says what differs.

using 'main.bicep'

// A scale set and a VM application are for one system, so a deployment for Linux
// beside this one has another prefix.
param prefix = 'spotworker-win'
param operatingSystem = 'Windows'

// Azure wants a password, though no port is open for it. It comes from the
// environment alone: ADMIN_PASSWORD, random, and the same one each time.
param adminPassword = readEnvironmentVariable('ADMIN_PASSWORD', '')
param sshPublicKey = ''

param operatorId = readEnvironmentVariable('OPERATOR_ID', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

// Who else than the VMs gets to the storage account, besides having roles there.
param operatorAddresses = empty(readEnvironmentVariable('OPERATOR_ADDRESSES', ''))
  ? []
  : split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')

param dataContainers = [
  { name: 'archive', access: 'Read' }
]

// Windows needs 4 GB for itself. Its licence is part of the price, which is that of
// the Windows meter, and Spot discounts the machine alone.
param vmSizes = [
  'Standard_D4as_v5'
  'Standard_D4s_v5'
]
param minInstances = 1
param maxInstances = 4
param capacity = int(readEnvironmentVariable('CAPACITY', '1'))
