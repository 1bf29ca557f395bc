// What the gallery may do: read packages.

import { roles } from 'types.bicep'

@description('Name of the storage account.')
param accountName string

@description('Name of the container of packages.')
param containerName string

@description('Object id of the gallery\'s identity.')
param principalId string

@description('Resource id of the gallery\'s identity, handed through: who takes it from here takes it with its role.')
param identityId string

resource account 'Microsoft.Storage/storageAccounts@2025-08-01' existing = {
  name: accountName

  resource blobService 'blobServices' existing = {
    name: 'default'

    resource packages 'containers' existing = { name: containerName }
  }
}

resource readsPackages 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: account::blobService::packages
  name: guid(account::blobService::packages.id, principalId, roles.blobDataReader)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataReader)
  }
}

@description('Resource id of the identity, once it has its role.')
output identityId string = identityId
