// Properties that all VMs of a scale set or a fleet share. The
// types are of the version that fleet.bicep names as its computeApiVersion;
// newer ones have properties that a fleet does not know.

import { imageType } from 'types.bicep'

@export()
@description('Operating system: one account that signs in with a public key; no password.')
func osProfile(
  computerNamePrefix string,
  adminUsername string,
  sshPublicKey string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.osProfile => {
  computerNamePrefix: computerNamePrefix
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

@export()
@description('Disk: the image and nothing else, deleted with its VM. Whatever must outlive a VM is in the storage account.')
func storageProfile(
  source imageType,
  diskType string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.storageProfile => {
  imageReference: source
  osDisk: {
    createOption: 'FromImage'
    caching: 'ReadWrite'
    deleteOption: 'Delete'
    managedDisk: { storageAccountType: diskType }
  }
}

@export()
@description('Network: one card in the subnet, no public address.')
func networkProfile(
  subnetId string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.networkProfile => {
  networkApiVersion: '2020-11-01'
  networkInterfaceConfigurations: [
    {
      name: 'workers'
      properties: {
        primary: true
        deleteOption: 'Delete'
        ipConfigurations: [
          {
            name: 'workers'
            properties: {
              primary: true
              subnet: { id: subnetId }
            }
          }
        ]
      }
    }
  ]
}

@export()
@description('Trusted Launch: the boot chain is signed.')
func securityProfile() resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.securityProfile => {
  securityType: 'TrustedLaunch'
  uefiSettings: {
    secureBootEnabled: true
    vTpmEnabled: true
  }
}

// A VM whose installation failed counts as made unless failOnInstall says
// otherwise. True stops a deployment whose version does not install. But Azure
// repairs no VM whose provisioning failed, so for the life of a scale set it is
// false: the VM is made, nothing answers on its health port, and it is replaced.
@export()
@description('The worker\'s package.')
func applicationProfile(
  packageId string,
  failOnInstall bool
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.applicationProfile => {
  galleryApplications: [
    {
      packageReferenceId: packageId
      order: 1
      treatFailureAsDeploymentFailure: failOnInstall
    }
  ]
}

// An answer other than Healthy, and none, count as unhealthy after a minute: longer
// than a restart of the worker, which happens on every update.
@export()
@description('Asks the worker for its health, in the form of rich health states.')
func healthExtension(
  port int
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.extensionProfile.extensions[*] => {
  name: 'ApplicationHealth'
  properties: {
    publisher: 'Microsoft.ManagedServices'
    type: 'ApplicationHealthLinux'
    typeHandlerVersion: '2.0'
    autoUpgradeMinorVersion: true
    settings: {
      protocol: 'http'
      port: port
      requestPath: '/healthz'
      intervalInSeconds: 10
      numberOfProbes: 6
      gracePeriod: 900
    }
  }
}

@export()
@description('Sends the worker\'s log off the VM, signed in with the VM\'s identity.')
func logExtension(
  identityId string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.extensionProfile.extensions[*] => {
  name: 'AzureMonitorLinuxAgent'
  properties: {
    publisher: 'Microsoft.Azure.Monitor'
    type: 'AzureMonitorLinuxAgent'
    typeHandlerVersion: '1.21'
    autoUpgradeMinorVersion: true
    enableAutomaticUpgrade: true
    settings: {
      authentication: {
        managedIdentity: {
          'identifier-name': 'mi_res_id'
          'identifier-value': identityId
        }
      }
    }
  }
}
