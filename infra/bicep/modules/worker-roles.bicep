// What one worker identity may do, each role on one queue or container.

import { dataContainerType, namesType, roles } from 'types.bicep'

@description('Name of the storage account.')
param accountName string

@description('Names of queues and containers.')
param names namesType

@description('Containers with the data that jobs work on.')
param dataContainers dataContainerType[]

@description('Object id of the identity.')
param principalId string

@description('Resource id of the identity, passed through: what depends on this output waits for its roles.')
param identityId string

@description('Whether these workers take jobs from the on-demand queue. Others only move jobs there. All may claim from the queues of jobs: on-demand workers move jobs from there that wait while their deadlines near.')
param takesOnDemand bool

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName

  resource queueService 'queueServices' existing = {
    name: 'default'

    resource jobs 'queues' existing = [for name in concat(names.jobs, [names.first]): { name: name }]
    resource onDemand 'queues' existing = { name: names.onDemand }
    resource poison 'queues' existing = { name: names.poison }
  }

  resource blobService 'blobServices' existing = {
    name: 'default'

    resource own 'containers' existing = [
      for name in [names.records, names.payloads, names.outputs, names.workers]: { name: name }
    ]
    resource control 'containers' existing = { name: names.control }
    resource data 'containers' existing = [for c in dataContainers: { name: c.name }]
  }
}

resource takesJobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 1 + length(names.jobs)): {
    scope: account::queueService::jobs[i]
    name: guid(account::queueService::jobs[i].id, principalId, roles.queueDataContributor)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.queueDataContributor)
    }
  }
]

resource takesOnDemandJobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (takesOnDemand) {
  scope: account::queueService::onDemand
  name: guid(account::queueService::onDemand.id, principalId, roles.queueDataContributor)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.queueDataContributor)
  }
}

// A worker that moves jobs puts messages there, and looks at its start whether
// the queue exists.
resource movesJobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in takesOnDemand ? [] : [roles.queueDataMessageSender, roles.queueDataReader]: {
    scope: account::queueService::onDemand
    name: guid(account::queueService::onDemand.id, principalId, role)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]

// A worker puts what cannot be done there, and reads for its metrics how much that is.
resource givesUp 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in [roles.queueDataMessageSender, roles.queueDataReader]: {
    scope: account::queueService::poison
    name: guid(account::queueService::poison.id, principalId, role)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]

resource writesOwn 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 4): {
    scope: account::blobService::own[i]
    name: guid(account::blobService::own[i].id, principalId, roles.blobDataContributor)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataContributor)
    }
  }
]

// Operators write there what workers only read.
resource readsControl 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: account::blobService::control
  name: guid(account::blobService::control.id, principalId, roles.blobDataReader)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataReader)
  }
}

resource worksOnData 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (c, i) in dataContainers: {
    scope: account::blobService::data[i]
    name: guid(account::blobService::data[i].id, principalId, c.access)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(
        'Microsoft.Authorization/roleDefinitions',
        c.access == 'ReadWrite' ? roles.blobDataContributor : roles.blobDataReader
      )
    }
  }
]

@description('Resource id of the identity, once it has its roles.')
output identityId string = identityId
