// One version of one VM application: a package and its default configuration,
// both read from the storage account by the gallery's identity, without a key
// or a signed address. Versions do not change; another configuration is
// another version.

import { packageCommandsType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the gallery.')
param galleryName string

@description('Name of the application.')
param applicationName string

@description('Version: three numbers with dots between them.')
param version string

@description('Address of the package.')
param packageUrl string

@description('Address of the configuration file; empty where it is in the package.')
param configurationUrl string

@description('Name under which the package is put into the folder where the commands run.')
param packageFileName string

@description('Commands of the package.')
param commands packageCommandsType

@description('Regions to copy the version to. VMs find it in their own region only.')
param regions string[]

resource gallery 'Microsoft.Compute/galleries@2025-03-03' existing = {
  name: galleryName

  resource application 'applications' existing = { name: applicationName }
}

resource applicationVersion 'Microsoft.Compute/galleries/applications/versions@2025-03-03' = {
  parent: gallery::application
  name: version
  location: location
  tags: tags
  properties: {
    publishingProfile: {
      source: {
        mediaLink: packageUrl
        defaultConfigurationLink: empty(configurationUrl) ? null : configurationUrl
      }
      manageActions: {
        install: commands.install
        update: commands.update
        remove: commands.remove
      }
      settings: {
        packageFileName: packageFileName
        configFileName: 'worker.env'
        // A reboot in the middle of an installation: it is run again. The package
        // sees to that too, for where the extension takes it for done.
        scriptBehaviorAfterReboot: 'Rerun'
      }
      excludeFromLatest: false
      replicaCount: 1
      targetRegions: [for region in regions: { name: region, regionalReplicaCount: 1 }]
    }
    safetyProfile: { allowDeletionOfReplicatedLocations: true }
  }
}

@description('Resource id of the version.')
output versionId string = applicationVersion.id
