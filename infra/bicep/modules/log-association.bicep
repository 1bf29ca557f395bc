// Associates the agents on the VMs with their collection rule.
//
// The VMs of a Flexible scale set and of a fleet are resources of their own,
// and come and go. A policy, which sees each of them when it is made,
// associates them; what it needs for that is its identity's roles.

import { operatingSystemType, roles } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource id of the collection rule.')
param ruleId string

@description('What the VMs run.')
param operatingSystem operatingSystemType

var resourceKind = 'Microsoft.Insights/dataCollectionRules'

// "Configure Linux Machines to be associated with a Data Collection Rule or a
// Data Collection Endpoint", built in, and its twin for Windows.
var definition = operatingSystem == 'Windows'
  ? 'eab1f514-22e3-42e3-9a1f-e1dc9199355c'
  : '2ea82cdd-f2e8-4500-af75-67a2e084ca74'

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${prefix}-log-policy'
  location: location
  tags: tags
}

module policyRoles 'policy-roles.bicep' = {
  name: '${prefix}-log-policy-roles'
  params: {
    principalId: identity.properties.principalId
    roleIds: [roles.monitoringContributor, roles.logAnalyticsContributor]
  }
}

resource assignment 'Microsoft.Authorization/policyAssignments@2025-03-01' = {
  name: '${prefix}-logs'
  location: location
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    displayName: 'Logs of ${prefix}'
    description: 'Associates the VMs of this resource group with the collection rule of the spotworker.'
    policyDefinitionId: tenantResourceId('Microsoft.Authorization/policyDefinitions', definition)
    parameters: {
      effect: { value: 'DeployIfNotExists' }
      dcrResourceId: { value: ruleId }
      resourceType: { value: resourceKind }
      scopeToSupportedImages: { value: false }
    }
  }
  dependsOn: [policyRoles]
}

@description('Resource id of the policy assignment. VMs created after it are associated automatically.')
output assignmentId string = assignment.id
