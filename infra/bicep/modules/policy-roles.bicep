// Roles of a policy's identity, on this resource group.

@description('Object id of the identity.')
param principalId string

@description('Ids of the roles that the policy definition asks for.')
param roleIds string[]

resource assignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in roleIds: {
    name: guid(resourceGroup().id, principalId, role)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]
