// One Spot VM.

import { imageType } from 'types.bicep'
import * as vm from 'vm.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the VM.')
param vmName string

@description('Resource id of the subnet.')
param subnetId string

@description('Resource id of the worker\'s identity. It must have its roles.')
param identityId string

@description('Resource id of the VM application\'s version.')
param packageId string

@description('Whether a VM that cannot install the package fails the deployment.')
param failOnInstall bool

@description('Size of the VM.')
param vmSize string

@description('What an eviction does to the VM.')
param evictionPolicy 'Delete' | 'Deallocate'

@description('Highest price in US dollars an hour; -1 is the price of a regular VM.')
param maxPrice string

@description('Image of the VM.')
param image imageType

@description('Kind of the disk.')
param diskType string

@description('Name of the account on the VM.')
param adminUsername string

@description('Public key that the account signs in with.')
param sshPublicKey string

@description('Whether the worker\'s log is sent off the VM.')
param sendLogs bool

resource card 'Microsoft.Network/networkInterfaces@2025-01-01' = {
  name: vmName
  location: location
  tags: tags
  properties: {
    ipConfigurations: [
      {
        name: 'workers'
        properties: {
          primary: true
          privateIPAllocationMethod: 'Dynamic'
          subnet: { id: subnetId }
        }
      }
    ]
  }
}

resource machine 'Microsoft.Compute/virtualMachines@2025-04-01' = {
  name: vmName
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: {
    priority: 'Spot'
    evictionPolicy: evictionPolicy
    billingProfile: { maxPrice: json(maxPrice) }
    hardwareProfile: { vmSize: vmSize }
    osProfile: {
      computerName: vmName
      adminUsername: adminUsername
      linuxConfiguration: {
        disablePasswordAuthentication: true
        provisionVMAgent: true
        ssh: {
          publicKeys: [
            {
              path: '/home/${adminUsername}/.ssh/authorized_keys'
              keyData: sshPublicKey
            }
          ]
        }
      }
    }
    storageProfile: {
      imageReference: image
      osDisk: {
        createOption: 'FromImage'
        caching: 'ReadWrite'
        deleteOption: 'Delete'
        managedDisk: { storageAccountType: diskType }
      }
    }
    networkProfile: {
      networkInterfaces: [
        {
          id: card.id
          properties: {
            primary: true
            deleteOption: 'Delete'
          }
        }
      ]
    }
    securityProfile: vm.securityProfile()
    applicationProfile: vm.applicationProfile(packageId, failOnInstall)
    diagnosticsProfile: {
      bootDiagnostics: { enabled: true }
    }
  }
}

resource logAgent 'Microsoft.Compute/virtualMachines/extensions@2025-04-01' = if (sendLogs) {
  parent: machine
  name: 'AzureMonitorLinuxAgent'
  location: location
  tags: tags
  properties: vm.logExtension('Linux', identityId).properties
}

@description('Resource id of the VM.')
output vmId string = machine.id
