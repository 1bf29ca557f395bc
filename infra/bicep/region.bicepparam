// A further region on the queue of another one: VMs, network, gallery and
// identities here, the storage account there. docs/deploy.md leads through it.

using 'main.bicep'

// The prefix of the first region, since the queues are its queues.
param prefix = 'spotworker'
param accountName = readEnvironmentVariable('ACCOUNT_NAME', 'accountofthefirst')
param accountGroup = readEnvironmentVariable('ACCOUNT_GROUP', 'spotworker')

param sshPublicKey = readEnvironmentVariable('SSH_PUBLIC_KEY', '')
param applicationVersion = readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')

// The same containers as in the first region.
param dataContainers = [
  { name: 'archive', access: 'Read' }
]

param addressPrefix = '10.43.0.0/22'
param vmSizes = ['Standard_D2as_v5', 'Standard_D2s_v5', 'Standard_E2as_v5']
param minInstances = 1
param maxInstances = 20
param capacity = int(readEnvironmentVariable('CAPACITY', '1'))
