// Alerts, as queries over the worker's log and the
// agents' heartbeats. The queue's own count is updated much later.

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

@description('Number of messages that arrive in the poison queue within an hour before an alert fires.')
@minValue(1)
param poisonPerHour int

@description('Age in hours, since it was put, at which a started job that has not ended raises an alert.')
@minValue(1)
@maxValue(48)
param oldestJobHours int

var rules = [
  {
    name: 'poison'
    title: 'Jobs are given up'
    text: 'More than ${poisonPerHour} messages went to the poison queue within an hour. Each is there with its reason.'
    severity: 2
    query: '${tableName} | where msg == "message moved to the poison queue"'
    operator: 'GreaterThan'
    threshold: poisonPerHour
    window: 'PT1H'
    frequency: 'PT5M'
  }
  {
    name: 'oldest-job'
    title: 'A job does not end'
    text: 'A job that was started within the last two days was put more than ${oldestJobHours} h ago, and has neither ended nor been given up. It fails again and again, is interrupted too often or is large; or there are too few workers, and jobs wait.'
    severity: 3
    query: '${tableName} | where isnotempty(job_id) | summarize put = min(enqueued_at), ended = countif(msg in ("job committed", "message moved to the poison queue", "message deleted: its job is over already")) by job_id | where ended == 0 and put < ago(${oldestJobHours}h)'
    operator: 'GreaterThan'
    threshold: 0
    window: 'P2D'
    frequency: 'PT1H'
  }
  {
    name: 'no-workers'
    title: 'Jobs have not ended, and there are no VMs'
    text: 'Jobs that were started within the last two days have not ended, and no VM has sent a heartbeat for 15 minutes. Either there is no capacity at the price that was set, or all VMs fail at their start. Jobs that no worker has started yet are seen by the alerts over metrics alone.'
    severity: 1
    // Where all jobs have ended there is no need for a VM.
    query: 'let seen = toscalar(Heartbeat | where Category == "Azure Monitor Agent" | summarize max(TimeGenerated)); ${tableName} | where isnotempty(job_id) | summarize ended = countif(msg in ("job committed", "message moved to the poison queue", "message deleted: its job is over already")) by job_id | where ended == 0 and isnotnull(seen) and seen < ago(15m)'
    operator: 'GreaterThan'
    threshold: 0
    window: 'P2D'
    frequency: 'PT5M'
  }
  {
    name: 'storage-unreachable'
    title: 'Workers do not reach storage'
    text: 'More than half of the VMs have had no answer of the storage account for the last minutes. Running jobs continue, nothing is saved, and an eviction now costs the work since the last checkpoint.'
    severity: 1
    // A worker logs that when it begins, and then every minute.
    query: 'let all = toscalar(Heartbeat | where TimeGenerated > ago(10m) | summarize dcount(Computer)); ${tableName} | where msg in ("storage unreachable; running jobs continue, what needs it waits", "storage still unreachable") | summarize down = dcount(Computer) | where down > 0.5 * all'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT5M'
    frequency: 'PT5M'
  }
  {
    name: 'storage-denied'
    title: 'Storage denies access'
    text: 'The storage account denies calls of more than one VM in twenty: a role assignment, the sign-in or the firewall. Jobs are safe and wait.'
    severity: 1
    query: 'let all = toscalar(Heartbeat | where TimeGenerated > ago(10m) | summarize dcount(Computer)); ${tableName} | where msg in ("storage denies access; running jobs continue, what is denied waits", "storage still denies access") | summarize down = dcount(Computer) | where down > 0.05 * all'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT5M'
    frequency: 'PT5M'
  }
  {
    name: 'blind-watchers'
    title: 'Workers would not see an eviction'
    text: 'The metadata service has given the workers of more than one VM in ten no answer for 5 minutes. Until it does, an eviction costs up to one checkpoint interval of work.'
    severity: 2
    // A worker says that once, and once that the service answers again; the agent
    // tells whether its VM is still there.
    query: 'let all = toscalar(Heartbeat | where TimeGenerated > ago(10m) | summarize dcount(Computer)); ${tableName} | where msg in ("metadata service is unavailable; an eviction would come without notice", "metadata service answers again") | summarize arg_max(TimeGenerated, msg) by Computer, FilePath | where msg startswith "metadata service is unavailable" and TimeGenerated < ago(5m) | join kind=inner (Heartbeat | where TimeGenerated > ago(10m) | distinct Computer) on Computer | summarize blind = dcount(Computer) | where blind > 0.1 * all'
    operator: 'GreaterThan'
    threshold: 0
    window: 'P1D'
    frequency: 'PT5M'
  }
]

resource alerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [
  for rule in rules: {
    name: '${prefix}-${rule.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: '${prefix}: ${rule.title}'
      description: rule.text
      enabled: true
      severity: rule.severity
      scopes: [workspaceId]
      evaluationFrequency: rule.frequency
      windowSize: rule.window
      // The tables are empty until the first VM is there.
      skipQueryValidation: true
      autoMitigate: true
      criteria: {
        allOf: [
          {
            query: rule.query
            timeAggregation: 'Count'
            operator: rule.operator
            threshold: rule.threshold
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
]
