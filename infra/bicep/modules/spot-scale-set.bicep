// Spot VMs, with a floor of regular ones if wanted. Flexible orchestration: it
// alone mixes sizes and priorities.

import { imageType, operatingSystemType } from 'types.bicep'
import * as vm from 'vm.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the scale set.')
param scaleSetName string

@description('Availability zones; none leaves the choice to Azure.')
param zones string[]

@description('Resource id of the subnet.')
param subnetId string

@description('Resource id of the workers\' identity. It must have its roles.')
param identityId string

@description('Resource id of the VM application\'s version.')
param packageId string

@description('Whether a VM that cannot install the package fails the deployment.')
param failOnInstall bool

@description('Sizes to choose from. They must have the same architecture, disk interface and kind of local disk.')
@minLength(1)
@maxLength(5)
param vmSizes string[]

@description('How Azure chooses between the sizes.')
param allocationStrategy 'LowestPrice' | 'CapacityOptimized'

@description('Priority of the VMs.')
param priority 'Spot' | 'SpotPlus'

@description('What an eviction does to a VM.')
param evictionPolicy 'Delete' | 'Deallocate'

@description('Highest price in US dollars an hour; -1 is the price of a regular VM, and then only capacity evicts.')
param maxPrice string

@description('Whether Azure is asked to restore evicted VMs. Microsoft documents that for Flexible orchestration; users report that Azure refuses it there with InvalidParameter.')
param restore bool

@description('How long that is tried, as an ISO 8601 duration.')
param restoreTimeout string

@description('Number of regular VMs before the first Spot VM.')
@minValue(0)
param baseRegularCount int

@description('Share of regular VMs above that, in percent.')
@minValue(0)
@maxValue(100)
param regularPercentage int

@description('Number of VMs.')
@minValue(0)
@maxValue(1000)
param capacity int

@description('How running VMs get a new version or size.')
param upgradeMode 'Manual' | 'Automatic' | 'Rolling'

@description('Whether events are published to Event Grid and Resource Graph too, for monitoring from outside.')
param publishEvents bool

@description('What the VMs run.')
param operatingSystem operatingSystemType

@description('Image of the VMs.')
param image imageType

@description('Kind of the disk.')
param diskType string

@description('Name of the account on the VMs.')
param adminUsername string

@description('Public key that the account signs in with, on Linux.')
param sshPublicKey string

@description('Password of the account, on Windows.')
@secure()
param adminPassword string

@description('Port on which the worker serves its health.')
param healthPort int

@description('Whether the worker\'s log is sent off the VM.')
param sendLogs bool

var mixed = baseRegularCount > 0 || regularPercentage > 0

var sku = {
  name: length(vmSizes) > 1 ? 'Mix' : vmSizes[0]
  capacity: capacity
}

// SpotPlus is known to the newest version of the interface alone, which reaches
// regions late. All else stays with one that is everywhere.
var model = {
  orchestrationMode: 'Flexible'
  platformFaultDomainCount: 1
  singlePlacementGroup: false
  skuProfile: length(vmSizes) > 1
    ? {
        allocationStrategy: allocationStrategy
        vmSizes: map(vmSizes, size => { name: size })
      }
    : null
  priorityMixPolicy: mixed
    ? {
        baseRegularPriorityCount: baseRegularCount
        regularPriorityPercentageAboveBase: regularPercentage
      }
    : null
  // https://github.com/Azure/azure-cli/issues/29461
  spotRestorePolicy: restore
    ? {
        enabled: true
        restoreTimeout: restoreTimeout
      }
    : null
  automaticRepairsPolicy: {
    enabled: true
    gracePeriod: 'PT20M'
    repairAction: 'Replace'
  }
  upgradePolicy: {
    mode: upgradeMode
    rollingUpgradePolicy: upgradeMode == 'Rolling'
      ? {
          maxBatchInstancePercent: 20
          // An eviction in the middle of an update must not end it.
          maxUnhealthyInstancePercent: 50
          maxUnhealthyUpgradedInstancePercent: 50
          pauseTimeBetweenBatches: 'PT30S'
        }
      : null
  }
  scheduledEventsPolicy: publishEvents
    ? {
        scheduledEventsAdditionalPublishingTargets: {
          eventGridAndResourceGraph: {
            enable: true
            scheduledEventsApiVersion: '2020-07-01'
          }
        }
      }
    : null
  virtualMachineProfile: {
    priority: priority
    evictionPolicy: evictionPolicy
    billingProfile: { maxPrice: json(maxPrice) }
    osProfile: operatingSystem == 'Windows' ? union(vm.windowsProfile('spot', adminUsername), { adminPassword: adminPassword }) : vm.osProfile('spot', adminUsername, sshPublicKey)
    storageProfile: vm.storageProfile(image, diskType)
    networkProfile: vm.networkProfile(subnetId)
    securityProfile: vm.securityProfile()
    applicationProfile: vm.applicationProfile(packageId, failOnInstall)
    extensionProfile: {
      extensions: concat([vm.healthExtension(operatingSystem, healthPort)], sendLogs ? [vm.logExtension(operatingSystem, identityId)] : [])
    }
    diagnosticsProfile: {
      bootDiagnostics: { enabled: true }
    }
  }
}

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2025-04-01' = if (priority == 'Spot') {
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

module plusScaleSet 'spot-plus.bicep' = if (priority == 'SpotPlus') {
  name: '${scaleSetName}-plus'
  params: {
    location: location
    tags: tags
    scaleSetName: scaleSetName
    zones: zones
    identityId: identityId
    sku: sku
    model: model
  }
}

@description('Resource id of the scale set.')
output scaleSetId string = resourceId('Microsoft.Compute/virtualMachineScaleSets', scaleSetName)
