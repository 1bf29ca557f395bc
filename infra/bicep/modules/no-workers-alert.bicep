// An alert for a fleet that reports nothing although jobs wait. It reads the workers'
// log, because a deployment without metrics has only that. All other alerts are in
// prometheus-alerts.bicep.

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource id of the workspace.')
param workspaceId string

@description('Name of the table of log lines.')
param tableName string

@description('Resource ids of the action groups that alerts are sent to. Without one, alerts are seen in the portal only.')
param actionGroupIds string[]

// About six workers of a fleet log "queue read" every five minutes, if they take messages.
var query = 'let alive = toscalar(${tableName} | where TimeGenerated > ago(15m) and msg in ("queue read", "job started", "job committed") | summarize count()); ${tableName} | where msg == "queue read" and queue !endswith "-poison" | summarize arg_max(TimeGenerated, messages) by queue | where messages > 0 and alive == 0'

resource alert 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: '${prefix}-no-workers'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: '${prefix}: Jobs wait, and no worker takes any'
    description: 'Messages were on a queue when a worker read it last, and for 15 minutes no worker has read one, started a job or committed one. There is no capacity, or all workers fail at their start or are drained. Silent where the queue was empty then.'
    enabled: true
    severity: 1
    scopes: [workspaceId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT6H'
    // The tables are empty until the first VM is there.
    skipQueryValidation: true
    autoMitigate: true
    criteria: {
      allOf: [
        {
          query: query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: { actionGroups: actionGroupIds }
  }
}
