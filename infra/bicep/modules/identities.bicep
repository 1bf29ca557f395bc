// The identities that VMs and the gallery sign in with. They are the user's,
// not the VM's own: their roles are assigned before the first VM exists, and
// an eviction deletes none of them.

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Whether there are VMs of regular priority for the on-demand queue.')
param onDemand bool

resource spot 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${prefix}-worker'
  location: location
  tags: tags
}

resource regular 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = if (onDemand) {
  name: '${prefix}-ondemand-worker'
  location: location
  tags: tags
}

resource gallery 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${prefix}-gallery'
  location: location
  tags: tags
}

@description('An identity: what it is called in Azure Resource Manager, in role assignments and when signing in.')
type identityType = {
  @description('Resource id.')
  id: string
  @description('Object id, for role assignments.')
  principalId: string
  @description('Client id, for signing in.')
  clientId: string
}

@description('Identity of the Spot VMs.')
output worker identityType = {
  id: spot.id
  principalId: spot.properties.principalId
  clientId: spot.properties.clientId
}

@description('Identity of the VMs of regular priority; null where there are none.')
output onDemandWorker identityType? = onDemand
  ? {
      id: regular!.id
      principalId: regular!.properties.principalId
      clientId: regular!.properties.clientId
    }
  : null

@description('Identity that the gallery reads packages with.')
output gallery identityType = {
  id: gallery.id
  principalId: gallery.properties.principalId
  clientId: gallery.properties.clientId
}
