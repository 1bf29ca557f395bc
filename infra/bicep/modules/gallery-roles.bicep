// What the gallery may do: read packages and their configuration. Microsoft asks
// for Contributor, although reading is all that is described; it is given on the
// packages' container alone.
// https://learn.microsoft.com/azure/virtual-machines/vm-applications-publish-with-managed-identity

import { roles } from 'types.bicep'

@description('Name of the storage account.')
param accountName string

@description('Name of the container of packages.')
param containerName string

@description('Object id of the gallery\'s identity.')
param principalId string

@description('Resource id of the gallery\'s identity, passed through: what depends on this output waits for its role.')
param identityId string

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName

  resource blobService 'blobServices' existing = {
    name: 'default'

    resource packages 'containers' existing = { name: containerName }
  }
}

resource readsPackages 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: account::blobService::packages
  name: guid(account::blobService::packages.id, principalId, roles.blobDataContributor)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.blobDataContributor)
  }
}

@description('Resource id of the identity, once it has its role.')
output identityId string = identityId
