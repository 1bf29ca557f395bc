// A scale set of priority SpotPlus, by a version of the interface that knows it.
// Its properties are those of spot-scale-set.bicep, which are checked there.

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the scale set.')
param scaleSetName string

@description('Availability zones; none leaves the choice to Azure.')
param zones string[]

@description('Resource id of the workers\' identity. It must have its roles.')
param identityId string

@description('Size and number of the VMs.')
param sku object

@description('Properties of the scale set. Secure as a whole, because the password of Windows is in it.')
@secure()
param model object

resource plusScaleSet 'Microsoft.Compute/virtualMachineScaleSets@2026-04-01' = {
  name: scaleSetName
  location: location
  tags: tags
  zones: empty(zones) ? null : zones
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  sku: sku
  properties: model
}

@description('Resource id of the scale set.')
output scaleSetId string = plusScaleSet.id
