// One subnet for all VMs. Nothing comes in, not even from a neighbour; what
// goes out is said explicitly.

import { outboundType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Address range of the network and its subnet. Azure keeps five addresses of it.')
param addressPrefix string

@description('How VMs reach the internet.')
param outbound outboundType

@description('Whether the storage account is in another region.')
param remoteStorage bool

resource securityGroup 'Microsoft.Network/networkSecurityGroups@2025-01-01' = {
  name: '${prefix}-workers'
  location: location
  tags: tags
  properties: {
    securityRules: [
      {
        name: 'DenyAllInbound'
        properties: {
          description: 'Workers accept no connections. Their health is read on the loopback interface.'
          priority: 4096
          direction: 'Inbound'
          access: 'Deny'
          protocol: '*'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

resource address 'Microsoft.Network/publicIPAddresses@2025-01-01' = if (outbound == 'NatGateway') {
  name: '${prefix}-outbound'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

resource gateway 'Microsoft.Network/natGateways@2025-01-01' = if (outbound == 'NatGateway') {
  name: '${prefix}-outbound'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    idleTimeoutInMinutes: 4
    publicIpAddresses: [{ id: address.id }]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2025-01-01' = {
  name: '${prefix}-network'
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    subnets: [
      {
        name: 'workers'
        properties: {
          addressPrefix: addressPrefix
          defaultOutboundAccess: false
          networkSecurityGroup: { id: securityGroup.id }
          natGateway: outbound == 'NatGateway' ? { id: gateway.id } : null
          // Traffic to storage stays off the gateway, which is paid by the gigabyte.
          // The account's firewall knows the subnet by it.
          serviceEndpoints: [{ service: remoteStorage ? 'Microsoft.Storage.Global' : 'Microsoft.Storage' }]
        }
      }
    ]
  }

  resource workers 'subnets' existing = { name: 'workers' }
}

@description('Resource id of the subnet.')
output subnetId string = network::workers.id
