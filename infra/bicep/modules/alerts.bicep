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

// Generated from infra/alerts by: go test ./infra/alerts -update
var rules = [
  {
    name: 'no-workers'
    title: 'Jobs wait, and no worker takes any'
    text: 'Messages were on a queue when a worker read it last, and for 15 minutes no worker has read one, started a job or committed one. There is no capacity, or all workers fail at their start or are drained. Silent where the queue was empty then.'
    severity: 1
    query: 'let alive = toscalar(${tableName} | where TimeGenerated > ago(15m) and msg in ("queue read", "job started", "job committed") | summarize count()); ${tableName} | where msg == "queue read" and queue !endswith "-poison" | summarize arg_max(TimeGenerated, messages) by queue | where messages > 0 and alive == 0'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT6H'
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
  {
    name: 'host-degraded'
    title: 'A host is expected to fail'
    text: 'Azure has announced for more than a day ahead that it will move a VM to another host, as it does for hardware that it expects to fail. The hardware may fail sooner: redeploy the VM yourself, docs/evictions.md has the command.'
    severity: 2
    query: '${tableName} | where msg == "scheduled event names this VM" and event_type == "Redeploy" and event_source == "Platform" and not_before > ago(-1d) | distinct Computer'
    operator: 'GreaterThan'
    threshold: 0
    window: 'P1D'
    frequency: 'PT1H'
  }
  {
    name: 'oldest-job'
    title: 'A job waits or does not end'
    text: 'A message has been at the front of a queue for more than ${oldestJobHours} h, or a job that was put so long ago and started within the last two days has neither ended nor been given up. There are too few workers or none that has its kind; or the job fails again and again, is interrupted too often or is large.'
    severity: 3
    query: 'let waits = ${tableName} | where msg == "queue read" and queue !endswith "-poison" | summarize arg_max(TimeGenerated, since) by queue | where since < ago(${oldestJobHours}h) | project name = queue; let open = ${tableName} | where isnotempty(job_id) | summarize put = min(enqueued_at), ended = countif(msg in ("job committed", "message moved to the poison queue", "message deleted: its job is over already")) by job_id | where ended == 0 and put < ago(${oldestJobHours}h) | project name = job_id; union waits, open'
    operator: 'GreaterThan'
    threshold: 0
    window: 'P2D'
    frequency: 'PT1H'
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
