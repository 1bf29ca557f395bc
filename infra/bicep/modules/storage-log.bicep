// Who wrote or deleted what in the storage account, and from which address. Reads
// are left out: idle workers ask the queue all the time.

@description('Name of the storage account.')
param accountName string

@description('Resource id of the workspace.')
param workspaceId string

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: accountName

  resource blobService 'blobServices' existing = { name: 'default' }
  resource queueService 'queueServices' existing = { name: 'default' }
}

// There has never been a version of it that is not a preview.
resource blobLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: account::blobService
  name: 'spotworker'
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'StorageWrite', enabled: true }
      { category: 'StorageDelete', enabled: true }
    ]
  }
}

resource queueLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: account::queueService
  name: 'spotworker'
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'StorageWrite', enabled: true }
      { category: 'StorageDelete', enabled: true }
    ]
  }
}
