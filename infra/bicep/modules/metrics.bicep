// Takes the workers' metrics, which they push, and hands them to an Azure Monitor
// workspace (managed Prometheus). The endpoint receives, the rule says where to.

import { roles } from 'types.bicep'

@description('Region: that of the workspace.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource id of the Azure Monitor workspace.')
param metricsWorkspaceId string

@description('Object ids of the workers\' identities.')
param principalIds string[]

var stream = 'Microsoft-PrometheusMetrics'

resource endpoint 'Microsoft.Insights/dataCollectionEndpoints@2024-03-11' = {
  name: '${prefix}-metrics'
  location: location
  tags: tags
  properties: {
    networkAcls: { publicNetworkAccess: 'Enabled' }
  }
}

resource rule 'Microsoft.Insights/dataCollectionRules@2024-03-11' = {
  name: '${prefix}-metrics'
  location: location
  tags: tags
  properties: {
    description: 'The metrics of the spotworker, from its pushes to the workspace.'
    dataCollectionEndpointId: endpoint.id
    dataSources: {
      prometheusForwarder: [{ name: 'workers', streams: [stream] }]
    }
    destinations: {
      monitoringAccounts: [{ name: 'workspace', accountResourceId: metricsWorkspaceId }]
    }
    // The type does not list this stream, which the service documents for managed Prometheus.
    #disable-next-line unlisted-enum-value
    dataFlows: [{ streams: [stream], destinations: ['workspace'] }]
  }
}

resource pushes 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principalId in principalIds: {
    scope: rule
    name: guid(rule.id, principalId, roles.monitoringMetricsPublisher)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.monitoringMetricsPublisher)
    }
  }
]

@description('Where workers push their metrics.')
output url string = '${endpoint.properties.metricsIngestion.endpoint}/dataCollectionRules/${rule.properties.immutableId}/streams/${stream}/api/v1/write?api-version=2023-04-24'
