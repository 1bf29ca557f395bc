// The compute gallery with the VM application, once for each kind of worker:
// the package is the same, the configuration that comes with it is not.

import { operatingSystemType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the gallery: letters, digits, dots and underscores.')
param galleryName string

@description('Names of the applications.')
param applicationNames string[]

@description('What the VMs run.')
param operatingSystem operatingSystemType

@description('Resource id of the identity that reads packages. It must have its role.')
param identityId string

resource gallery 'Microsoft.Compute/galleries@2025-03-03' = {
  name: galleryName
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: { description: 'The spotworker package and its configuration.' }
}

resource applications 'Microsoft.Compute/galleries/applications@2025-03-03' = [
  for name in applicationNames: {
    parent: gallery
    name: name
    location: location
    tags: tags
    properties: {
      description: 'A worker that takes jobs from a storage queue and survives evictions.'
      supportedOSType: operatingSystem
    }
  }
]
