// A fleet: Spot VMs held at a target over many sizes and zones, and regular
// ones below them.

import { imageType } from 'types.bicep'
import * as vm from 'vm.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the fleet.')
param fleetName string

@description('Availability zones; none leaves the choice to Azure.')
param zones string[]

@description('Resource id of the subnet.')
param subnetId string

@description('Resource id of the workers\' identity. It must have its roles.')
param identityId string

@description('Resource id of the VM application\'s version.')
param packageId string

@description('Sizes to choose from.')
@minLength(3)
param vmSizes string[]

@description('Target number of Spot VMs.')
param spotCapacity int

@description('How Azure chooses between sizes and zones.')
param allocationStrategy 'PriceCapacityOptimized' | 'CapacityOptimized' | 'LowestPrice'

@description('Highest price in US dollars an hour; -1 is the price of a regular VM.')
param maxPrice string

@description('Number of VMs of regular priority.')
param regularCapacity int

@description('Image of the VMs.')
param image imageType

@description('Kind of the disk.')
param diskType string

@description('Name of the account on the VMs.')
param adminUsername string

@description('Public key that the account signs in with.')
param sshPublicKey string

@description('Port on which the worker serves its health.')
param healthPort int

@description('Whether the worker\'s log is sent off the VM.')
param sendLogs bool

resource fleet 'Microsoft.AzureFleet/fleets@2024-11-01' = {
  name: fleetName
  location: location
  tags: tags
  zones: empty(zones) ? null : zones
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: {
    spotPriorityProfile: {
      capacity: spotCapacity
      // Azure replaces evicted VMs with any of the sizes.
      maintain: true
      evictionPolicy: 'Delete'
      allocationStrategy: allocationStrategy
      maxPricePerVM: json(maxPrice)
    }
    regularPriorityProfile: {
      capacity: regularCapacity
      allocationStrategy: 'LowestPrice'
    }
    vmSizesProfile: [for size in vmSizes: { name: size }]
    computeProfile: {
      computeApiVersion: '2024-07-01'
      platformFaultDomainCount: 1
      baseVirtualMachineProfile: {
        osProfile: vm.osProfile('fleet', adminUsername, sshPublicKey)
        storageProfile: vm.storageProfile(image, diskType)
        networkProfile: vm.networkProfile(subnetId)
        securityProfile: vm.securityProfile()
        applicationProfile: vm.applicationProfile(packageId, false)
        extensionProfile: {
          extensions: concat([vm.healthExtension('Linux', healthPort)], sendLogs ? [vm.logExtension('Linux', identityId)] : [])
        }
      }
    }
  }
}

@description('Resource id of the fleet.')
output fleetId string = fleet.id
