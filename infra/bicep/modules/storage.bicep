// The storage account: queues, containers, and how long blobs are kept.
// Keys are disabled, nothing is public, only networks that are named
// can access it, and nothing keeps a second copy of a record: a job is written many
// times.

import { dataContainerType, namesType, retentionType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the account: 3 to 24 of a-z and 0-9, the only one of that name in all of Azure.')
@minLength(3)
@maxLength(24)
param accountName string

@description('How often the account keeps the data: in one zone, or in three.')
param redundancy 'Standard_LRS' | 'Standard_ZRS'

@description('Names of queues and containers.')
param names namesType

@description('Over how many of the queues of jobs jobs are put. They are taken from all of them.')
param queueShards int

@description('Containers with the data that jobs work on.')
param dataContainers dataContainerType[]

@description('How long blobs are kept.')
param retention retentionType

@description('Whether only the networks below may access the account.')
param firewall bool

@description('Resource ids of the subnets that may access the account.')
param subnetIds string[]

@description('Public IPv4 addresses, or ranges of them, that may access the account.')
param addresses string[]

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: accountName
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: redundancy }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    isLocalUserEnabled: false
    minimumTlsVersion: 'TLS1_2'
    networkAcls: {
      defaultAction: firewall ? 'Deny' : 'Allow'
      // The gallery fetches packages as a trusted service, with its identity.
      bypass: 'AzureServices'
      virtualNetworkRules: [for id in subnetIds: { id: id }]
      ipRules: [for address in addresses: { value: address }]
    }
    publicNetworkAccess: 'Enabled'
    supportsHttpsTrafficOnly: true
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-01-01' = {
  parent: account
  name: 'default'
}

// The first queue has the numbers for workers and producers: docs/FORMATS.md.
var shards = {
  shards: string(queueShards)
  shardstaken: string(length(names.jobs))
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-01-01' = [
  for name in concat(names.jobs, [names.first, names.onDemand, names.poison]): {
    parent: queueService
    name: name
    properties: { metadata: name == names.queue ? shards : {} }
  }
]

// Versions, soft delete and the change feed are off, since they would keep a
// copy or an event of every save. What is deleted is therefore gone: records by
// their age, data by those who may write it.
resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' = {
  parent: account
  name: 'default'
  properties: {
    isVersioningEnabled: false
    deleteRetentionPolicy: { enabled: false }
    containerDeleteRetentionPolicy: { enabled: false }
    changeFeed: { enabled: false }
  }
}

resource containers 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' = [
  for name in concat(
    [names.records, names.payloads, names.outputs, names.workers, names.control, names.packages],
    map(dataContainers, c => c.name)
  ): {
    parent: blobService
    name: name
    properties: { publicAccess: 'None' }
  }
]

// Jobs' logs are in the payloads' container and go with the jobs' records.
var kept = [
  { name: 'records', container: names.records, days: retention.records }
  { name: 'payloads', container: names.payloads, days: retention.payloads }
  { name: 'logs', container: '${names.payloads}/logs', days: retention.records }
  { name: 'workers', container: names.workers, days: retention.workers }
  { name: 'outputs', container: names.outputs, days: retention.?outputs ?? 180 }
]

resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2025-01-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        for rule in kept: {
          name: rule.name
          type: 'Lifecycle'
          enabled: true
          definition: {
            filters: {
              blobTypes: ['blockBlob']
              prefixMatch: ['${rule.container}/']
            }
            actions: {
              baseBlob: {
                delete: { daysAfterModificationGreaterThan: rule.days }
              }
            }
          }
        }
      ]
    }
  }
  dependsOn: [containers]
}

@description('Resource id of the account.')
output accountId string = account.id
