// Package alerts has the alerts of a deployment, in one table. From it come the rules for
// Prometheus (infra/prometheus/alerts.yml), the rule group of Azure Monitor managed
// Prometheus (infra/bicep/modules/prometheus-alerts.bicep) and the list in docs/operating.md.
// A test compares them; -update writes them. The dashboard (infra/grafana/spotworker.json)
// is made here too. The package consists of tests only. The one alert over the log, infra/bicep/modules/no-workers-alert.bicep,
// is written by hand.
//
// Expressions are ratios over the fleet wherever a single VM must not page: a fleet of 500
// in which one VM is slow is well, and a fleet whose two VMs see no storage is not. No alert
// fires because no worker is there and none has to be.
//
// Each alert is tested by replaying its incident, recorded from real workers:
// internal/test/integration/incidents.
package alerts

import "time"

// Alert is one rule.
type Alert struct {
	Name     string        // in Prometheus
	Incident string        // what happens, in a few words
	Severity string        // "critical": somebody must act now; "warning": today
	Expr     string        // in PromQL
	For      time.Duration // how long Expr has to hold
	Summary  string        // one line, with templates of Prometheus
	Means    string        // the meaning for jobs, and the action to take
}

// All returns the alerts, the most urgent ones first.
func All() []Alert {
	return []Alert{
		{
			Name: "SpotworkerNoWorkers", Incident: "jobs wait and no worker takes any", Severity: "critical", For: 2 * time.Minute,
			Expr: `max by (queue) (
  last_over_time(spotworker_queue_messages{queue!~".+-poison"}[6h])
  and on (instance, queue) (
    last_over_time(spotworker_queue_read_timestamp_seconds[6h])
    == on (queue) group_left ()
    max by (queue) (last_over_time(spotworker_queue_read_timestamp_seconds[6h]))
  )
) > 0
unless on () (count(spotworker_state{state="process"} == 1))`,
			Summary: "{{ $value }} messages wait on {{ $labels.queue }}, and no worker takes any",
			Means: "No capacity, or all workers fail at their start or are drained. Jobs are safe and wait. Look at the scale set's " +
				"instances, then at the log of one that started. Goes by the queue's last reading, at most 6 h old.",
		},
		{
			Name: "SpotworkerStorageUnreachable", Incident: "storage outage", Severity: "critical", For: time.Minute,
			Expr:    `sum(rate(spotworker_storage_unreachable_seconds_total[1m])) / count(spotworker_build_info) > 0.5`,
			Summary: "storage answers {{ $value | humanizePercentage }} of the workers' time with nothing",
			Means: "Running jobs continue, nothing is saved or claimed; an eviction costs the work since the last checkpoint. " +
				"Look at the account's availability, DNS and the network.",
		},
		{
			Name: "SpotworkerStorageDenied", Incident: "a role was removed (401, 403)", Severity: "critical", For: time.Minute,
			Expr:    `sum(rate(spotworker_storage_calls_total{status="denied"}[2m])) / sum(rate(spotworker_storage_calls_total[2m])) > 0.05`,
			Summary: "storage denies {{ $value | humanizePercentage }} of the calls",
			Means: "A role assignment, the sign-in or the account's firewall. Jobs are safe and wait. The log names the operation; spotctl " +
				"shows which role it needs.",
		},
		{
			Name: "SpotworkerStorageMissing", Incident: "a queue or container was deleted (404)", Severity: "critical", For: 0,
			Expr:    `sum(increase(spotworker_storage_calls_total{status="missing", operation!~"` + readsOfOptional + `"}[2m])) > 3`,
			Summary: "storage has no queue or container for about {{ $value | humanize }} calls within 2 minutes",
			Means: "Workers wait. With the container of records all records, checkpoints and results are lost, unless soft delete keeps them. " +
				"spotctl status --check names it; restore it, or deploy again.",
		},
		{
			Name: "SpotworkerStorageThrottled", Incident: "storage throttles (429, 503)", Severity: "warning", For: time.Minute,
			Expr:    `sum(rate(spotworker_storage_calls_total{status="throttled"}[2m])) / sum(rate(spotworker_storage_calls_total[2m])) > 0.1`,
			Summary: "storage throttles {{ $value | humanizePercentage }} of the calls",
			Means:   "Too many workers or too short jobs for the account or a queue, or trouble of the service. Jobs take longer, none is lost.",
		},
		{
			Name: "SpotworkerStorageSlow", Incident: "storage answers slowly", Severity: "warning", For: time.Minute,
			Expr: `sum by (service) (rate(spotworker_storage_call_duration_seconds_bucket{operation!~"` + largeCalls + `", le=~"1|1.0"}[2m]))
/ (sum by (service) (rate(spotworker_storage_call_duration_seconds_count{operation!~"` + largeCalls + `"}[2m])) > 0) < 0.5`,
			Summary: "only {{ $value | humanizePercentage }} of the small calls to the {{ $labels.service }} service take less than a second",
			Means: "Jobs start and end later, none is lost; states may not be saved within a notice. Compare " +
				"SuccessServerLatency and SuccessE2ELatency of the account: the first is the service, the difference the network.",
		},
		{
			Name: "SpotworkerJobsDeadLettered", Incident: "a wave of jobs is dead-lettered", Severity: "critical", For: 0,
			Expr: `sum(increase(spotworker_delivery_outcomes_total{outcome="poisoned"}[5m])) > 5
and
sum(rate(spotworker_delivery_outcomes_total{outcome="poisoned"}[5m])) / ` +
				`sum(rate(spotworker_delivery_outcomes_total{outcome=~"poisoned|committed"}[5m])) > 0.05`,
			Summary: "about {{ $value | humanize }} jobs were dead-lettered within 5 minutes, more than one in twenty",
			Means:   "spotctl poison shows reasons and kinds. Nothing is dropped: replay what can be done again.",
		},
		{
			Name: "SpotworkerKindFails", Incident: "a kind fails everywhere", Severity: "warning", For: time.Minute,
			Expr: `sum by (kind) (rate(spotworker_job_failures_total[5m]))
/ (sum by (kind) (rate(spotworker_job_failures_total[5m])) + sum by (kind) (rate(spotworker_job_duration_seconds_count[5m]))) > 0.15
and sum by (kind) (increase(spotworker_job_failures_total[5m])) > 5
unless on (kind) min by (kind) (
  (sum by (kind) (rate(spotworker_job_failures_total[5m]))
    - on (kind) group_right () sum by (instance, kind) (rate(spotworker_job_failures_total[5m])))
  / (sum by (kind) (rate(spotworker_job_failures_total[5m])) + sum by (kind) (rate(spotworker_job_duration_seconds_count[5m]))
    - on (kind) group_right () (sum by (instance, kind) (rate(spotworker_job_failures_total[5m]))
      + sum by (instance, kind) (rate(spotworker_job_duration_seconds_count[5m]))) > 0.001)
) < 0.1`,
			Summary: "{{ $value | humanizePercentage }} of the runs of kind {{ $labels.kind }} fail",
			Means: "The jobs, their input, or what they call, since it is not one VM alone. Metric spotworker_job_failures_total has the class, " +
				"the log the errors.",
		},
		{
			Name: "SpotworkerMachineFails", Incident: "one VM fails all or many jobs", Severity: "warning", For: time.Minute,
			Expr: `(
  max by (instance, kind) (spotworker_breaker_open) == 1
  and on (kind) avg by (kind) (spotworker_breaker_open) < 0.5
)
or (
  sum by (instance, kind) (increase(spotworker_job_failures_total[2m])) > 2
  and on (instance, kind) 4 * sum by (instance, kind) (increase(spotworker_job_duration_seconds_count[2m]))
    <= sum by (instance, kind) (increase(spotworker_job_failures_total[2m]))
  and on (kind) sum by (kind) (increase(spotworker_job_duration_seconds_count[2m]))
    >= sum by (kind) (increase(spotworker_job_failures_total[2m]))
)`,
			Summary: "jobs of kind {{ $labels.kind }} fail on {{ $labels.instance }}, and not on most others",
			Means:   "Its worker leaves most of the kind's jobs to others. The log has the errors; spotctl quarantine, then delete the VM.",
		},
		{
			Name: "SpotworkerBlind", Incident: "the metadata service is silent", Severity: "warning", For: time.Minute,
			Expr:    `sum(rate(spotworker_metadata_blind_seconds_total[2m])) / count(spotworker_build_info) > 0.1`,
			Summary: "workers would not see an eviction {{ $value | humanizePercentage }} of their time",
			Means:   "Work is safe, but an eviction repeats up to one checkpoint interval.",
		},
		{
			Name: "SpotworkerHostDegraded", Incident: "a host is expected to fail", Severity: "warning", For: 0,
			Expr:    `sum by (instance) (spotworker_scheduled_events_total{type="Redeploy", action="drain by"}) > 0`,
			Summary: "Azure will move {{ $labels.instance }} to another host",
			Means: "Often for hardware that is expected to fail, days ahead. It may fail sooner, without a notice: redeploy the VM yourself, " +
				"docs/evictions.md has the command.",
		},
		{
			Name: "SpotworkerClockWrong", Incident: "a VM's clock jumps", Severity: "warning", For: time.Minute,
			Expr:    `abs(spotworker_clock_offset_seconds) > 30`,
			Summary: "the clock of {{ $labels.instance }} is wrong by {{ $value | humanizeDuration }}",
			Means:   "From 15 minutes on storage and sign-in refuse the VM. Look at its time service, or delete the VM.",
		},
		{
			Name: "SpotworkerCrashLoop", Incident: "a worker crashes again and again", Severity: "warning", For: 0,
			Expr:    `changes(spotworker_start_timestamp_seconds[10m]) > 2`,
			Summary: "the worker on {{ $labels.instance }} started {{ $value }} times more within 10 minutes",
			Means:   "Each crash repeats up to one checkpoint interval. The end of its log says why: journalctl -u spotworker.",
		},
		{
			Name: "SpotworkerWorkLost", Incident: "much work is lost at evictions", Severity: "warning", For: 0,
			Expr: `sum by (kind) (increase(spotworker_handler_seconds_total{outcome="redone"}[10m])) > 60
and
sum by (kind) (increase(spotworker_handler_seconds_total{outcome="redone"}[10m])) / ` +
				`sum by (kind) (increase(spotworker_handler_seconds_total[10m])) > 0.2`,
			Summary: "about {{ $value | humanizeDuration }} of work of kind {{ $labels.kind }} were not saved within 10 minutes",
			Means:   "Programs that ignore SIGTERM or save seldom, killed workers, or cancels. work_lost of the line job released names the jobs.",
		},
		{
			Name: "SpotworkerKindMissing", Incident: "one worker has other kinds than the rest", Severity: "warning", For: time.Minute,
			Expr: `count by (kind) (spotworker_breaker_open) == on () group_left () (count(spotworker_build_info) - 1) > 1
and on () count by (kind) (spotworker_breaker_open) == 1`,
			Summary: "all workers but one have kind {{ $labels.kind }}, and one has a kind alone",
			Means:   "A kind is renamed or misspelt on one VM, which leaves its jobs to others. spotctl status names the worker.",
		},
		{
			Name: "SpotworkerScratchFull", Incident: "a disk is full", Severity: "warning", For: time.Minute,
			Expr:    `spotworker_scratch_free_bytes / (spotworker_scratch_size_bytes > 0) < 0.05`,
			Summary: "{{ $value | humanizePercentage }} of the file system of --scratch is free on {{ $labels.instance }}",
			Means:   "Jobs of programs are handed to other machines uncounted. Choose a larger disk, or delete the VM.",
		},
		{
			Name: "SpotworkerOutOfMemory", Incident: "programs are killed for memory", Severity: "warning", For: 0,
			Expr:    `sum by (instance) (increase(spotworker_oom_kills_total[5m])) > 0`,
			Summary: "about {{ $value | humanize }} processes were killed on {{ $labels.instance }} because memory ran out",
			Means:   "Give the kind a limit of memory, a worker fewer slots, or the VM more memory.",
		},
		{
			Name: "SpotworkerJobSilent", Incident: "a job is stuck", Severity: "warning", For: 2 * time.Minute,
			Expr:    `sum(spotworker_jobs_silent) > 0`,
			Summary: "{{ $value }} running jobs have stopped reporting",
			Means: "A job reports nothing for 30 s and 10 times as long as ever before, or from its start 10 times as long as " +
				"jobs of its kind run (an hour if that is not known). spotctl status names it; give the kind max_silence.",
		},
		{
			Name: "SpotworkerEvictionsUnseen", Incident: "evictions without notice", Severity: "warning", For: 0,
			Expr: `sum(increase(spotworker_job_wait_seconds_count{after="exit"}[5m])) > 3
and
sum(rate(spotworker_job_wait_seconds_count{after="exit"}[5m])) / ` +
				`sum(rate(spotworker_job_wait_seconds_count{after=~"exit|release"}[5m])) > 0.5`,
			Summary: "about {{ $value | humanize }} jobs lost their worker without a notice within 5 minutes",
			Means:   "VMs die, or their workers crash. Look at the VMs' boot diagnostics and at the end of the workers' logs.",
		},
		{
			Name: "SpotworkerKindUnknown", Incident: "jobs of a kind that no worker has", Severity: "warning", For: 2 * time.Minute,
			Expr:    `sum(spotworker_jobs_without_worker) > 0`,
			Summary: "about {{ $value }} jobs wait, and no worker has a handler for their kinds",
			Means: "A misspelt kind, or the workers with the kind are gone. spotctl status names the kinds. After an hour such jobs are " +
				"dead-lettered; jobs that have begun wait on.",
		},
		{
			Name: "SpotworkerQueueGrows", Incident: "more jobs are put than end", Severity: "warning", For: time.Minute,
			Expr: `max by (queue) (spotworker_queue_messages{queue!~".+-poison"})
- max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s) > 10
and max by (queue) (spotworker_queue_messages{queue!~".+-poison"})
> 1.05 * max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s)
and max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 90s)
> 1.05 * max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 3m)
and on () sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
> 600 * sum(rate(spotworker_delivery_outcomes_total{outcome="committed"}[3m]))`,
			Summary: "{{ $labels.queue }} has {{ $value }} more messages than 90 seconds ago, grew before that too, and takes over 10 minutes to " +
				"clear",
			Means: "Start more VMs, or look at why jobs take longer: spotctl status has run times and failures by kind.",
		},
		{
			Name: "SpotworkerNotScaled", Incident: "a queue grows and the number of workers does not", Severity: "warning", For: 10 * time.Minute,
			Expr: `sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
- sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"} offset 5m)) > 10
and on () count(spotworker_build_info) <= count(spotworker_build_info offset 15m)
unless on () sum(max by (queue) (spotworker_queue_messages{queue!~".+-poison"}))
<= 600 * sum(rate(spotworker_delivery_outcomes_total{outcome="committed"}[5m]))`,
			Summary: "{{ $value }} more messages than 5 minutes ago, growth for 15 minutes, and no more workers",
			Means: "Autoscale has no metrics or is at its maximum, or quota or capacity is used up. Jobs wait. Look at the run history of " +
				"the autoscale setting; spotctl scale sets the number.",
		},
		{
			Name: "SpotworkerCapacityGone", Incident: "many VMs were evicted and not replaced", Severity: "warning", For: time.Minute,
			Expr: `count(spotworker_state{state="process"} == 1)
/ max_over_time(count(spotworker_state{state="process"} == 1)[1h:1m]) < 0.6
and on () max(spotworker_queue_oldest_message_age_seconds{queue!~".+-poison"}) > 60`,
			Summary: "{{ $value | humanizePercentage }} of the last hour's workers are left, and jobs wait",
			Means: "Evicted VMs are not replaced: no spare capacity of this size and region, or a scale-in while jobs wait. spotctl prices shows " +
				"other sizes.",
		},
		{
			Name: "SpotworkerJobsWait", Incident: "the oldest job waits for too long", Severity: "warning", For: time.Minute,
			Expr:    `max by (queue) (spotworker_queue_oldest_message_age_seconds{queue!~".+-poison"}) > ` + oldestWait,
			Summary: "the message at the front of {{ $labels.queue }} has waited for {{ $value | humanizeDuration }}",
			Means:   "Too few workers, or none that has its kind. Change the threshold where jobs may wait longer.",
		},
	}
}

// largeCalls are the operations that may send or list much: package azure has the same list.
const largeCalls = "PutBlob|PutBlock|PutBlockList|GetBlob|ListBlobs"

// readsOfOptional are the operations that ask for a queue or container which a deployment may
// lack: the control document, and the lengths of queues.
const readsOfOptional = "GetBlob|GetQueueMetadata|PeekMessages"

// oldestWait is the age at which the oldest waiting job raises an alert, in seconds.
const oldestWait = "3600"
