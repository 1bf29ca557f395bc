// VMs of regular priority for the on-demand queue: jobs that Spot VMs were
// interrupted in too often are finished here. They are not evicted, and told
// well before anything else happens to them.

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

@description('Size of the VMs.')
param vmSize string

@description('Number of VMs.')
@minValue(0)
@maxValue(1000)
param capacity int

@description('How running VMs get a new version or size.')
param upgradeMode 'Manual' | 'Automatic' | 'Rolling'

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

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2025-04-01' = {
  name: scaleSetName
  location: location
  tags: tags
  zones: empty(zones) ? null : zones
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  sku: {
    name: vmSize
    capacity: capacity
  }
  properties: {
    orchestrationMode: 'Flexible'
    platformFaultDomainCount: 1
    singlePlacementGroup: false
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
            maxUnhealthyInstancePercent: 20
            maxUnhealthyUpgradedInstancePercent: 20
            pauseTimeBetweenBatches: 'PT30S'
          }
        : null
    }
    virtualMachineProfile: {
      priority: 'Regular'
      osProfile: operatingSystem == 'Windows' ? union(vm.windowsProfile('ondemand', adminUsername), { adminPassword: adminPassword }) : vm.osProfile('ondemand', adminUsername, sshPublicKey)
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
      // Spot VMs cannot have it. Flexible orchestration has no automatic OS
      // upgrade either: a VM gets the newest image when it is made.
      scheduledEventsProfile: {
        terminateNotificationProfile: {
          enable: true
          notBeforeTimeout: 'PT15M'
        }
      }
    }
  }
}

@description('Resource id of the scale set.')
output scaleSetId string = scaleSet.id
