// Every eviction of this resource group, from the activity log: it is there
// with policy Delete too, when the VM is not.

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource ids of the action groups that alerts are sent to.')
param actionGroupIds string[]

resource evictions 'Microsoft.Insights/activityLogAlerts@2020-10-01' = {
  name: '${prefix}-evictions'
  location: 'global'
  tags: tags
  properties: {
    description: 'Azure evicted a Spot VM. Its jobs continue on other VMs. No action is needed unless evictions are constant.'
    enabled: true
    scopes: [resourceGroup().id]
    condition: {
      allOf: [
        { field: 'category', equals: 'Administrative' }
        {
          anyOf: [
            { field: 'operationName', equals: 'Microsoft.Compute/virtualMachineScaleSets/evictSpotVM/action' }
            { field: 'operationName', equals: 'Microsoft.Compute/virtualMachines/evictSpotVM/action' }
          ]
        }
        { field: 'status', equals: 'Succeeded' }
      ]
    }
    actions: {
      actionGroups: [for id in actionGroupIds: { actionGroupId: id }]
    }
  }
}
