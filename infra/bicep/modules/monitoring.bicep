// Keeps the worker's log when its VM is deleted: the
// agent reads the log file, the collection rule maps each line to a row,
// the workspace keeps it.

import { operatingSystemType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('What the VMs run.')
param operatingSystem operatingSystemType

@description('Files that hold the worker\'s log, one JSON object a line.')
param logFiles string[]

@description('Days until log lines are deleted.')
@minValue(4)
@maxValue(730)
param retentionDays int

@description('Gigabytes a day after which lines are dropped until the next day; -1 for no end.')
param dailyQuotaGb int

// What is not listed here is not kept. Names and meaning are the worker's.
var columns = [
  { name: 'level', type: 'string' }
  { name: 'msg', type: 'string' }
  { name: 'worker', type: 'string' }
  { name: 'queue', type: 'string' }
  { name: 'version', type: 'string' }
  { name: 'job_id', type: 'string' }
  { name: 'message_id', type: 'string' }
  { name: 'kind', type: 'string' }
  { name: 'reason', type: 'string' }
  { name: 'error', type: 'string' }
  { name: 'event_id', type: 'string' }
  { name: 'action', type: 'string' }
  { name: 'from', type: 'string' }
  { name: 'to', type: 'string' }
  { name: 'since_notice', type: 'string' }
  { name: 'fraction', type: 'real' }
]

// Filled by the agent.
var sources = [
  { name: 'Computer', type: 'string' }
  { name: 'FilePath', type: 'string' }
]

var stream = 'Custom-SpotworkerLog'

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-02-01' = {
  name: '${prefix}-logs'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionDays < 30 ? 30 : retentionDays
    workspaceCapping: { dailyQuotaGb: dailyQuotaGb }
    features: {
      disableLocalAuth: true
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

resource table 'Microsoft.OperationalInsights/workspaces/tables@2025-02-01' = {
  parent: workspace
  name: 'SpotworkerLog_CL'
  properties: {
    plan: 'Analytics'
    retentionInDays: retentionDays
    schema: {
      name: 'SpotworkerLog_CL'
      columns: concat(
        [
          { name: 'TimeGenerated', type: 'dateTime' }
          { name: 'enqueued_at', type: 'dateTime' }
          { name: 'event_type', type: 'string' }
        ],
        sources,
        columns
      )
    }
  }
}

resource endpoint 'Microsoft.Insights/dataCollectionEndpoints@2024-03-11' = {
  name: '${prefix}-logs'
  location: location
  tags: tags
  kind: operatingSystem
  properties: {
    networkAcls: { publicNetworkAccess: 'Enabled' }
  }
}

resource rule 'Microsoft.Insights/dataCollectionRules@2024-03-11' = {
  name: '${prefix}-logs'
  location: location
  tags: tags
  kind: operatingSystem
  properties: {
    description: 'The log of the spotworker, from its file to its table.'
    dataCollectionEndpointId: endpoint.id
    streamDeclarations: {
      '${stream}': {
        columns: concat(
          [
            { name: 'TimeGenerated', type: 'datetime' }
            { name: 'time', type: 'datetime' }
            { name: 'enqueued_at', type: 'datetime' }
            { name: 'type', type: 'string' }
          ],
          sources,
          columns
        )
      }
    }
    dataSources: {
      logFiles: [
        {
          name: 'worker'
          format: 'json'
          filePatterns: logFiles
          streams: [stream]
        }
      ]
      // Start, stop and errors of the service, which are in no log file.
      windowsEventLogs: operatingSystem == 'Windows'
        ? [
            {
              name: 'service'
              streams: ['Microsoft-Event']
              xPathQueries: ['Application!*[System[Provider[@Name=\'spotworker\']]]']
            }
          ]
        : null
    }
    destinations: {
      logAnalytics: [
        {
          name: 'workspace'
          workspaceResourceId: workspace.id
        }
      ]
    }
    dataFlows: concat(operatingSystem == 'Windows'
      ? [
          {
            streams: ['Microsoft-Event']
            destinations: ['workspace']
          }
        ]
      : [], [
      {
        // The names of custom streams are one's own.
        #disable-next-line unlisted-enum-value
        streams: [stream]
        destinations: ['workspace']
        outputStream: 'Custom-${table.name}'
        // A line counts from when it was written, not from when it arrived; and
        // every table has a column Type of its own. Transformations know only part
        // of the query language, and not coalesce.
        transformKql: 'source | extend TimeGenerated = iif(isnotnull([\'time\']), [\'time\'], TimeGenerated), event_type = [\'type\'] | project-away [\'time\'], [\'type\']'
      }
    ])
  }
}

@description('Resource id of the workspace.')
output workspaceId string = workspace.id

@description('Name of the table of log lines.')
output tableName string = table.name

@description('Resource id of the collection rule.')
output ruleId string = rule.id
