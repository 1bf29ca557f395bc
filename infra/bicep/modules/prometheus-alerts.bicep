// Alerts over the workers' metrics, for Azure Monitor managed Prometheus.
// Generated from infra/alerts by: go test ./infra/alerts -update

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource id of the Azure Monitor workspace that has the metrics.')
param metricsWorkspaceId string

@description('Resource ids of the action groups that alerts are sent to. Without one, alerts are seen in the portal only.')
param actionGroupIds string[]

var rules = [
  {
    name: 'SpotworkerNoWorkers'
    severity: 1
    hold: 'PT2M'
    summary: '{{ $value }} messages wait on {{ $labels.queue }}, and no worker takes any'
    text: 'No capacity, or all workers fail at their start or are drained. Jobs are safe and wait. Look at the scale set\'s instances, then at the log of one that started. Goes by the queue\'s last reading, at most 6 h old.'
    expression: '''
max by (queue) (
  last_over_time(spotworker_queue_messages{queue!~".+-poison"}[6h])
  and on (instance, queue) (
    last_over_time(spotworker_queue_read_timestamp_seconds[6h])
    == on (queue) group_left ()
    max by (queue) (last_over_time(spotworker_queue_read_timestamp_seconds[6h]))
  )
) > 0
unless on () (count(spotworker_state{state="process"} == 1))
'''
  }
  {
    name: 'SpotworkerStorageUnreachable'
    severity: 1
    hold: 'PT1M'
    summary: 'storage answers {{ $value | humanizePercentage }} of the workers\' time with nothing'
    text: 'Running jobs continue, nothing is saved or claimed; an eviction costs the work since the last checkpoint. Look at the account\'s availability, DNS and the network.'
    expression: '''
sum(rate(spotworker_storage_unreachable_seconds_total[1m])) / count(spotworker_build_info) > 0.5
'''
  }
  {
    name: 'SpotworkerStorageDenied'
    severity: 1
    hold: 'PT1M'
    summary: 'storage denies {{ $value | humanizePercentage }} of the calls'
    text: 'A role assignment, the sign-in or the account\'s firewall. Jobs are safe and wait. The log names the operation; spotctl shows which role it needs.'
    expression: '''
sum(rate(spotworker_storage_calls_total{status="denied"}[2m])) / sum(rate(spotworker_storage_calls_total[2m])) > 0.05
'''
  }
  {
    name: 'SpotworkerStorageMissing'
    severity: 1
    hold: 'PT0M'
    summary: 'storage has no queue or container for about {{ $value | humanize }} calls within 2 minutes'
    text: 'Workers wait. With the container of records all records, checkpoints and results are lost, unless soft delete keeps them. spotctl status --check names it; restore it, or deploy again.'
    expression: '''
sum(increase(spotworker_storage_calls_total{status="missing", operation!~"GetBlob|GetQueueMetadata|PeekMessages"}[2m])) > 3
'''
  }
  {
    name: 'SpotworkerStorageThrottled'
    severity: 2
    hold: 'PT1M'
    summary: 'storage throttles {{ $value | humanizePercentage }} of the calls'
    text: 'Too many workers or too short jobs for the account or a queue, or trouble of the service. Jobs take longer, none is lost.'
    expression: '''
sum(rate(spotworker_storage_calls_total{status="throttled"}[2m])) / sum(rate(spotworker_storage_calls_total[2m])) > 0.1
'''
  }
  {
    name: 'SpotworkerStorageSlow'
    severity: 2
    hold: 'PT1M'
    summary: 'only {{ $value | humanizePercentage }} of the small calls to the {{ $labels.service }} service take less than a second'
    text: 'Jobs start and end later, none is lost; states may not be saved within a notice. Compare SuccessServerLatency and SuccessE2ELatency of the account: the first is the service, the difference the network.'
    expression: '''
sum by (service) (rate(spotworker_storage_call_duration_seconds_bucket{operation!~"PutBlob|PutBlock|PutBlockList|GetBlob|ListBlobs", le=~"1|1.0"}[2m]))
/ (sum by (service) (rate(spotworker_storage_call_duration_seconds_count{operation!~"PutBlob|PutBlock|PutBlockList|GetBlob|ListBlobs"}[2m])) > 0) < 0.5
'''
  }
  {
    name: 'SpotworkerJobsDeadLettered'
    severity: 1
    hold: 'PT0M'
    summary: 'about {{ $value | humanize }} jobs were dead-lettered within 5 minutes, more than one in twenty'
    text: 'spotctl poison shows reasons and kinds. Nothing is dropped: replay what can be done again.'
    expression: '''
sum(increase(spotworker_delivery_outcomes_total{outcome="poisoned"}[5m])) > 5
and
sum(rate(spotworker_delivery_outcomes_total{outcome="poisoned"}[5m])) / sum(rate(spotworker_delivery_outcomes_total{outcome=~"poisoned|committed"}[5m])) > 0.05
'''
  }
  {
    name: 'SpotworkerKindFails'
    severity: 2
    hold: 'PT1M'
    summary: '{{ $value | humanizePercentage }} of the runs of kind {{ $labels.kind }} fail'
    text: 'The jobs, their input, or what they call, since it is not one VM alone. Metric spotworker_job_failures_total has the class, the log the errors.'
    expression: '''
sum by (kind) (rate(spotworker_job_failures_total[5m]))
/ (sum by (kind) (rate(spotworker_job_failures_total[5m])) + sum by (kind) (rate(spotworker_job_duration_seconds_count[5m]))) > 0.15
and sum by (kind) (increase(spotworker_job_failures_total[5m])) > 5
unless on (kind) min by (kind) (
  (sum by (kind) (rate(spotworker_job_failures_total[5m]))
    - on (kind) group_right () sum by (instance, kind) (rate(spotworker_job_failures_total[5m])))
  / (sum by (kind) (rate(spotworker_job_failures_total[5m])) + sum by (kind) (rate(spotworker_job_duration_seconds_count[5m]))
    - on (kind) group_right () (sum by (instance, kind) (rate(spotworker_job_failures_total[5m]))
      + sum by (instance, kind) (rate(spotworker_job_duration_seconds_count[5m]))) > 0.001)
) < 0.1
'''
  }
  {
    name: 'SpotworkerMachineFails'
    severity: 2
    hold: 'PT1M'
    summary: 'jobs of kind {{ $labels.kind }} fail on {{ $labels.instance }}, and not on most others'
    text: 'Its worker leaves most of the kind\'s jobs to others. The log has the errors; spotctl quarantine, then delete the VM.'
    expression: '''
(
  max by (instance, kind) (spotworker_breaker_open) == 1
  and on (kind) avg by (kind) (spotworker_breaker_open) < 0.5
)
or (
  sum by (instance, kind) (increase(spotworker_job_failures_total[2m])) > 2
  and on (instance, kind) 4 * sum by (instance, kind) (increase(spotworker_job_duration_seconds_count[2m]))
    <= sum by (instance, kind) (increase(spotworker_job_failures_total[2m]))
  and on (kind) sum by (kind) (increase(spotworker_job_duration_seconds_count[2m]))
    >= sum by (kind) (increase(spotworker_job_failures_total[2m]))
)
'''
  }
  {
    name: 'SpotworkerBlind'
    severity: 2
    hold: 'PT1M'
    summary: 'workers would not see an eviction {{ $value | humanizePercentage }} of their time'
    text: 'Work is safe, but an eviction repeats up to one checkpoint interval.'
    expression: '''
sum(rate(spotworker_metadata_blind_seconds_total[2m])) / count(spotworker_build_info) > 0.1
'''
  }
  {
    name: 'SpotworkerHostDegraded'
    severity: 2
    hold: 'PT0M'
    summary: 'Azure will move {{ $labels.instance }} to another host'
    text: 'Often for hardware that is expected to fail, days ahead. It may fail sooner, without a notice: redeploy the VM yourself, docs/evictions.md has the command.'
    expression: '''
sum by (instance) (spotworker_scheduled_events_total{type="Redeploy", action="drain by"}) > 0
'''
  }
  {
    name: 'SpotworkerClockWrong'
    severity: 2
    hold: 'PT1M'
    summary: 'the clock of {{ $labels.instance }} is wrong by {{ $value | humanizeDuration }}'
    text: 'From 15 minutes on storage and sign-in refuse the VM. Look at its time service, or delete the VM.'
    expression: '''
abs(spotworker_clock_offset_seconds) > 30
'''
  }
  {
    name: 'SpotworkerCrashLoop'
    severity: 2
    hold: 'PT0M'
    summary: 'the worker on {{ $labels.instance }} started {{ $value }} times more within 10 minutes'
    text: 'Each crash repeats up to one checkpoint interval. The end of its log says why: journalctl -u spotworker.'
    expression: '''
changes(spotworker_start_timestamp_seconds[10m]) > 2
'''
  }
  {
    name: 'SpotworkerWorkLost'
    severity: 2
    hold: 'PT0M'
    summary: 'about {{ $value | humanizeDuration }} of work of kind {{ $labels.kind }} were not saved within 10 minutes'
    text: 'Programs that ignore SIGTERM or save seldom, killed workers, or cancels. work_lost of the line job released names the jobs.'
    expression: '''
sum by (kind) (increase(spotworker_handler_seconds_total{outcome="redone"}[10m])) > 60
and
sum by (kind) (increase(spotworker_handler_seconds_total{outcome="redone"}[10m])) / sum by (kind) (increase(spotworker_handler_seconds_total[10m])) > 0.2
'''
  }
  {
    name: 'SpotworkerKindMissing'
    severity: 2
    hold: 'PT1M'
    summary: 'all workers but one have kind {{ $labels.kind }}, and one has a kind alone'
    text: 'A kind is renamed or misspelt on one VM, which leaves its jobs to others. spotctl status names the worker.'
    expression: '''
count by (kind) (spotworker_breaker_open) == on () group_left () (count(spotworker_build_info) - 1) > 1
and on () count by (kind) (spotworker_breaker_open) == 1
'''
  }
  {
    name: 'SpotworkerScratchFull'
    severity: 2
    hold: 'PT1M'
    summary: '{{ $value | humanizePercentage }} of the file system of --scratch is free on {{ $labels.instance }}'
    text: 'Jobs of programs are handed to other machines uncounted. Choose a larger disk, or delete the VM.'
    expression: '''
spotworker_scratch_free_bytes / (spotworker_scratch_size_bytes > 0) < 0.05
'''
  }
  {
    name: 'SpotworkerOutOfMemory'
    severity: 2
    hold: 'PT0M'
    summary: 'about {{ $value | humanize }} processes were killed on {{ $labels.instance }} because memory ran out'
    text: 'Give the kind a limit of memory, a worker fewer slots, or the VM more memory.'
    expression: '''
sum by (instance) (increase(spotworker_oom_kills_total[5m])) > 0
'''
  }
  {
    name: 'SpotworkerJobSilent'
    severity: 2
    hold: 'PT2M'
    summary: '{{ $value }} running jobs have stopped reporting'
    text: 'A job reports nothing for 30 s and 10 times as long as ever before, or from its start 10 times as long as jobs of its kind run (an hour if that is not known). spotctl status names it; give the kind max_silence.'
    expression: '''
sum(spotworker_jobs_silent) > 0
'''
  }
  {
    name: 'SpotworkerEvictionsUnseen'
    severity: 2
    hold: 'PT0M'
    summary: 'about {{ $value | humanize }} jobs lost their worker without a notice within 5 minutes'
    text: 'VMs die, or their workers crash. Look at the VMs\' boot diagnostics and at the end of the workers\' logs.'
    expression: '''
sum(increase(spotworker_job_wait_seconds_count{after="exit"}[5m])) > 3
and
sum(rate(spotworker_job_wait_seconds_count{after="exit"}[5m])) / sum(rate(spotworker_job_wait_seconds_count{after=~"exit|release"}[5m])) > 0.5
'''
  }
  {
    name: 'SpotworkerKindUnknown'
    severity: 2
    hold: 'PT2M'
    summary: 'about {{ $value }} jobs wait, and no worker has a handler for their kinds'
    text: 'A misspelt kind, or the workers with the kind are gone. spotctl status names the kinds. After an hour such jobs are dead-lettered; jobs that have begun wait on.'
    expression: '''
sum(spotworker_jobs_without_worker) > 0
'''
  }
  {
    name: 'SpotworkerQueueGrows'
    severity: 2
    hold: 'PT1M'
    summary: '{{ $labels.queue }} has {{ $value }} more messages than 90 seconds ago, grew before that too, and takes over 10 minutes to clear'
    text: 'Start more VMs, or look at why jobs take longer: spotctl status has run times and failures by kind.'
    expression: '''
max by (queue) (spotworker_queue_messages{queue!~".+-poison"})
- max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s) > 10
and max by (queue) (spotworker_queue_messages{queue!~".+-poison"})
> 1.05 * max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s)
and max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s)
> 1.05 * max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 3m)
and on () sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
> 600 * sum(rate(spotworker_delivery_outcomes_total{outcome="committed"}[3m]))
'''
  }
  {
    name: 'SpotworkerNotScaled'
    severity: 2
    hold: 'PT10M'
    summary: '{{ $value }} more messages than 5 minutes ago, growth for 15 minutes, and no more workers'
    text: 'Autoscale has no metrics or is at its maximum, or quota or capacity is used up. Jobs wait. Look at the run history of the autoscale setting; spotctl scale sets the number.'
    expression: '''
sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
- sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 5m)) > 10
and on () count(spotworker_build_info) <= count(spotworker_build_info offset 15m)
unless on () sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
<= 600 * sum(rate(spotworker_delivery_outcomes_total{outcome="committed"}[5m]))
'''
  }
  {
    name: 'SpotworkerCapacityGone'
    severity: 2
    hold: 'PT1M'
    summary: '{{ $value | humanizePercentage }} of the last hour\'s workers are left, and jobs wait'
    text: 'Evicted VMs are not replaced: no spare capacity of this size and region, or a scale-in while jobs wait. spotctl prices shows other sizes.'
    expression: '''
count(spotworker_state{state="process"} == 1)
/ max_over_time(count(spotworker_state{state="process"} == 1)[1h:1m]) < 0.6
and on () max(spotworker_queue_oldest_message_age_seconds{queue!~".+-poison"}) > 60
'''
  }
  {
    name: 'SpotworkerJobsWait'
    severity: 2
    hold: 'PT1M'
    summary: 'the message at the front of {{ $labels.queue }} has waited for {{ $value | humanizeDuration }}'
    text: 'Too few workers, or none that has its kind. Change the threshold where jobs may wait longer.'
    expression: '''
max by (queue) (spotworker_queue_oldest_message_age_seconds{queue!~".+-poison"}) > 3600
'''
  }
]

// A group has at most 20 rules.
resource groups 'Microsoft.AlertsManagement/prometheusRuleGroups@2023-03-01' = [
  for severity in [1, 2]: {
    name: '${prefix}-metrics-${severity == 1 ? 'critical' : 'warning'}'
    location: location
    tags: tags
    properties: {
      description: 'Alerts of the spotworker.'
      enabled: true
      scopes: [metricsWorkspaceId]
      interval: 'PT1M'
      rules: map(filter(rules, rule => rule.severity == severity), rule => {
        alert: rule.name
        enabled: true
        severity: rule.severity
        expression: trim(rule.expression)
        for: rule.hold
        labels: { severity: rule.severity == 1 ? 'critical' : 'warning' }
        annotations: { summary: rule.summary, description: rule.text }
        resolveConfiguration: { autoResolved: true, timeToResolve: 'PT5M' }
        actions: map(actionGroupIds, id => { actionGroupId: id })
      })
    }
  }
]
