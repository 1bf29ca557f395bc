// Properties that all VMs of a scale set or a fleet share. The
// types are of the version that fleet.bicep names as its computeApiVersion;
// newer ones have properties that a fleet does not know.

import { imageType, operatingSystemType } from 'types.bicep'

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

// Windows gives a VM of a Flexible scale set a name of this prefix and six
// characters, of 15 at most. It wants a password, which the scale set adds: a
// function has no secure parameters. No port is open for it.
@export()
@description('Operating system: Windows with the VM agent. Updates come with new VMs, not to running ones, which they would restart.')
func windowsProfile(
  computerNamePrefix string,
  adminUsername string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.osProfile => {
  computerNamePrefix: computerNamePrefix
  adminUsername: adminUsername
  windowsConfiguration: {
    provisionVMAgent: true
    enableAutomaticUpdates: false
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
  system operatingSystemType,
  port int
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.extensionProfile.extensions[*] => {
  name: 'ApplicationHealth'
  properties: {
    publisher: 'Microsoft.ManagedServices'
    type: system == 'Windows' ? 'ApplicationHealthWindows' : 'ApplicationHealthLinux'
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
  system operatingSystemType,
  identityId string
) resourceInput<'Microsoft.Compute/virtualMachineScaleSets@2024-07-01'>.properties.virtualMachineProfile.extensionProfile.extensions[*] => {
  name: system == 'Windows' ? 'AzureMonitorWindowsAgent' : 'AzureMonitorLinuxAgent'
  properties: {
    publisher: 'Microsoft.Azure.Monitor'
    type: system == 'Windows' ? 'AzureMonitorWindowsAgent' : 'AzureMonitorLinuxAgent'
    typeHandlerVersion: system == 'Windows' ? '1.0' : '1.21'
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
