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

// What is not listed here is not kept, nor a value of another type. A test holds these
// columns to the keys that the worker logs. A time is among the columns of the table and
// of the stream, whose names for that type differ.
var columns = [
  { name: 'level', type: 'string' }
  { name: 'msg', type: 'string' }
  { name: 'worker', type: 'string' }
  { name: 'vm', type: 'string' }
  { name: 'queue', type: 'string' }
  { name: 'version', type: 'string' }
  { name: 'job_id', type: 'string' }
  { name: 'message_id', type: 'string' }
  { name: 'kind', type: 'string' }
  { name: 'reason', type: 'string' }
  { name: 'error', type: 'string' }
  { name: 'event_id', type: 'string' }
  { name: 'event_type', type: 'string' }
  { name: 'action', type: 'string' }
  { name: 'from', type: 'string' }
  { name: 'to', type: 'string' }
  { name: 'since_notice', type: 'string' }
  { name: 'fraction', type: 'real' }
  // Of some lines only.
  { name: 'account', type: 'string' }
  { name: 'acknowledge', type: 'boolean' }
  { name: 'address', type: 'string' }
  { name: 'after', type: 'string' }
  { name: 'ahead', type: 'string' }
  { name: 'asked_for', type: 'long' }
  { name: 'at_most', type: 'string' }
  { name: 'attempt', type: 'long' }
  { name: 'breaks', type: 'long' }
  { name: 'budget', type: 'string' }
  { name: 'bytes', type: 'long' }
  { name: 'call', type: 'string' }
  { name: 'calls_failed', type: 'long' }
  { name: 'cancelled_by', type: 'string' }
  { name: 'cancels', type: 'long' }
  { name: 'changeover', type: 'string' }
  { name: 'code', type: 'string' }
  { name: 'committed', type: 'long' }
  { name: 'concurrency', type: 'long' }
  { name: 'control_groups', type: 'boolean' }
  { name: 'description', type: 'string' }
  { name: 'duration', type: 'string' }
  { name: 'early_exits', type: 'long' }
  { name: 'entries', type: 'long' }
  { name: 'event', type: 'string' }
  { name: 'event_source', type: 'string' }
  { name: 'exit', type: 'string' }
  { name: 'failures', type: 'long' }
  { name: 'failures_total', type: 'long' }
  { name: 'fetched_bytes', type: 'long' }
  { name: 'file', type: 'string' }
  { name: 'files', type: 'long' }
  { name: 'folder', type: 'string' }
  { name: 'follow_up_id', type: 'string' }
  { name: 'follow_up_kind', type: 'string' }
  { name: 'generation', type: 'long' }
  { name: 'gone_in', type: 'string' }
  { name: 'interruptions', type: 'long' }
  { name: 'interval', type: 'string' }
  { name: 'job_ids', type: 'dynamic' }
  { name: 'jobs', type: 'long' }
  { name: 'killed', type: 'boolean' }
  { name: 'left', type: 'string' }
  { name: 'left_processes', type: 'long' }
  { name: 'limit', type: 'long' }
  { name: 'lines', type: 'long' }
  { name: 'messages', type: 'long' }
  { name: 'messages_per_second', type: 'real' }
  { name: 'metadata_name', type: 'string' }
  { name: 'missing_role', type: 'string' }
  { name: 'move_after', type: 'long' }
  { name: 'moved', type: 'boolean' }
  { name: 'name', type: 'string' }
  { name: 'nearest', type: 'string' }
  { name: 'next_claims_ask_for', type: 'long' }
  { name: 'not_handed_over', type: 'long' }
  { name: 'not_saved', type: 'long' }
  { name: 'offset', type: 'long' }
  { name: 'outcome', type: 'string' }
  { name: 'output_bytes', type: 'long' }
  { name: 'output_files', type: 'long' }
  { name: 'panic', type: 'string' }
  { name: 'payload_bytes', type: 'long' }
  { name: 'poison_at', type: 'long' }
  { name: 'priority', type: 'string' }
  { name: 'processes', type: 'long' }
  { name: 'rebooted', type: 'boolean' }
  { name: 'released', type: 'long' }
  { name: 'removed', type: 'string' }
  { name: 'resource', type: 'string' }
  { name: 'result_bytes', type: 'long' }
  { name: 'resumed_at', type: 'real' }
  { name: 'retry_in', type: 'string' }
  { name: 'revision', type: 'long' }
  { name: 'scale_set', type: 'string' }
  { name: 'stack', type: 'string' }
  { name: 'state', type: 'string' }
  { name: 'state_bytes', type: 'long' }
  { name: 'state_left_out', type: 'boolean' }
  { name: 'states_left_out', type: 'long' }
  { name: 'status', type: 'string' }
  { name: 'stopped', type: 'boolean' }
  { name: 'stream', type: 'string' }
  { name: 'sudden', type: 'long' }
  { name: 'suppressed', type: 'long' }
  { name: 'take_from', type: 'dynamic' }
  { name: 'tasks', type: 'long' }
  { name: 'text', type: 'string' }
  { name: 'took', type: 'string' }
  { name: 'tries', type: 'long' }
  { name: 'trips', type: 'long' }
  { name: 'unclean_exits', type: 'long' }
  { name: 'user', type: 'long' }
  { name: 'usual_job', type: 'string' }
  { name: 'variable', type: 'string' }
  { name: 'verdict', type: 'string' }
  { name: 'visible_in', type: 'string' }
  { name: 'vm_name', type: 'string' }
  { name: 'warned', type: 'long' }
  { name: 'watched', type: 'string' }
  { name: 'work_lost', type: 'string' }
  { name: 'workers', type: 'long' }
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
          { name: 'expires', type: 'dateTime' }
          { name: 'last_seen', type: 'dateTime' }
          { name: 'not_before', type: 'dateTime' }
          { name: 'since', type: 'dateTime' }
          { name: 'until', type: 'dateTime' }
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
            { name: 'expires', type: 'datetime' }
            { name: 'last_seen', type: 'datetime' }
            { name: 'not_before', type: 'datetime' }
            { name: 'since', type: 'datetime' }
            { name: 'until', type: 'datetime' }
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
        // A line counts from when it was written, not from when it arrived.
        // Transformations know only part of the query language, and not coalesce.
        transformKql: 'source | extend TimeGenerated = iif(isnotnull([\'time\']), [\'time\'], TimeGenerated) | project-away [\'time\']'
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
