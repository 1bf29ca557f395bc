// What a person or group may do: put jobs, read results, handle poison
// messages, steer the workers, upload data and packages. Without keys even the owner of the
// account needs a role to access its data.

import { dataContainerType, namesType, principalKindType, roles } from 'types.bicep'

@description('Name of the storage account.')
param accountName string

@description('Names of queues and containers.')
param names namesType

@description('Containers with the data that jobs work on.')
param dataContainers dataContainerType[]

@description('Object id of the person, group or service principal.')
param principalId string

@description('What kind of principal that is.')
param principalType principalKindType

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName

  resource queueService 'queueServices' existing = {
    name: 'default'

    resource all 'queues' existing = [
      for name in concat(names.jobs, [names.first, names.onDemand, names.poison]): { name: name }
    ]
  }

  resource blobService 'blobServices' existing = {
    name: 'default'

    resource workers 'containers' existing = { name: names.workers }
    resource written 'containers' existing = [
      for name in concat([names.records, names.payloads, names.outputs, names.control, names.packages], map(dataContainers, c => c.name)): { name: name }
    ]
  }
}

resource handlesMessages 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 3 + length(names.jobs)): {
    scope: account::queueService::all[i]
    name: guid(account::queueService::all[i].id, principalId, roles.queueDataContributor)
    properties: {
      principalId: principalId
      principalType: principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.queueDataContributor)
    }
  }
]

resource writesBlobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 5 + length(dataContainers)): {
    scope: account::blobService::written[i]
    name: guid(account::blobService::written[i].id, principalId, roles.blobDataContributor)
    properties: {
      principalId: principalId
      principalType: principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataContributor)
    }
  }
]

resource seesWorkers 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: account::blobService::workers
  name: guid(account::blobService::workers.id, principalId, roles.blobDataReader)
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataReader)
  }
}
