package alerts

// Panel is a graph, or a number, of the dashboard.
type Panel struct {
	Title   string
	Unit    string // of Grafana: "short", "s", "bytes", "percentunit", "ops"
	Number  bool   // shows the newest value, not its course
	Stacked bool
	Queries []Query
}

// Query is one query of a panel. Legend is a template of Grafana.
type Query struct{ Expr, Legend string }

// Row is a row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// window is the time over which rates are: four scrapes at least.
const window = "[2m]"

// Dashboard returns the rows in reading order, from problems to single VMs.
func Dashboard() []Row {
	quantile := func(q, metric, by string) string {
		return "histogram_quantile(" + q + ", sum by (le" + by + ") (rate(" + metric + "_bucket" + window + ")))"
	}
	return []Row{
		{"Problems", []Panel{
			{"Alerts", "short", true, false, []Query{{`sum by (alertname, severity) (ALERTS{alertname=~"Spotworker.+", alertstate="firing"})`,
				"{{alertname}}"}}},
			{"Since the last commit", "s", true, false, []Query{{`time() - max(spotworker_last_commit_timestamp_seconds)`, "last commit"}}},
			{"Workers by state", "short", false, true, []Query{{`sum by (state) (spotworker_state) > 0`, "{{state}}"}}},
			{"Silent jobs, oldest report", "short", false, false, []Query{{`sum(spotworker_jobs_silent)`, "silent jobs"},
				{`max(spotworker_oldest_report_age_seconds) / 60`, "oldest report, minutes"}}},
		}},
		{"Queues", []Panel{
			{"Messages", "short", false, false, []Query{{`max by (queue) (spotworker_queue_messages)`, "{{queue}}"}}},
			{"Age of the oldest message", "s", false, false, []Query{{`max by (queue) (spotworker_queue_oldest_message_age_seconds)`, "{{queue}}"}}},
			{"Claimed and ended", "ops", false, false, []Query{
				{`sum(rate(spotworker_deliveries_total` + window + `))`, "claimed"},
				{`sum by (outcome) (rate(spotworker_delivery_outcomes_total` + window + `)) > 0`, "{{outcome}}"},
			}},
			{"Wait before a handler starts, 90 %", "s", false, false,
				[]Query{{quantile("0.9", "spotworker_job_wait_seconds", ", after"), "after {{after}}"}}},
		}},
		{"Slots", []Panel{
			{"What the slots do", "short", false, true, []Query{{`sum by (state) (rate(spotworker_slot_seconds_total` + window + `))`,
				"{{state}}"}}},
			{"Handlers by outcome", "short", false, true, []Query{{`sum by (outcome) (rate(spotworker_handler_seconds_total` + window + `))`,
				"{{outcome}}"}}},
			{"Goodput", "percentunit", false, false, []Query{{`sum(rate(spotworker_handler_seconds_total{outcome=~"committed|handed_over"}` +
				window + `)) / sum(rate(spotworker_handler_seconds_total` + window + `))`, "committed or handed over"}}},
		}},
		{"Evictions", []Panel{
			{"Handed over, and lost without notice", "short", false, true, []Query{
				{`sum by (reason) (increase(spotworker_drain_duration_seconds_count[5m]))`, "drained: {{reason}}"},
				{`sum(increase(spotworker_job_wait_seconds_count{after="exit"}[5m]))`, "jobs whose worker was lost"},
			}},
			{"Drain, 99 %", "s", false, false, []Query{{quantile("0.99", "spotworker_drain_duration_seconds", ", reason"), "{{reason}}"}}},
			{"From release to resume", "s", false, false, []Query{
				{`histogram_quantile(0.5, sum by (le) (rate(spotworker_job_wait_seconds_bucket{after="release"}` + window + `)))`, "50 %"},
				{`histogram_quantile(0.99, sum by (le) (rate(spotworker_job_wait_seconds_bucket{after="release"}` + window + `)))`, "99 %"},
			}},
			{"Checkpoints", "short", false, false, []Query{
				{`max(spotworker_oldest_checkpoint_age_seconds)`, "oldest, seconds"},
				{quantile("0.9", "spotworker_checkpoint_save_duration_seconds", ""), "save, 90 %, seconds"},
				{quantile("0.9", "spotworker_checkpoint_size_bytes", "") + " / 1048576", "size, 90 %, MiB"},
				{`sum(rate(spotworker_states_left_out_total` + window + `))`, "left out, per second"},
			}},
		}},
		{"Kinds", []Panel{
			{"Committed", "ops", false, true, []Query{{`sum by (kind) (rate(spotworker_job_duration_seconds_count` + window + `))`, "{{kind}}"}}},
			{"Share of runs that fail", "percentunit", false, false, []Query{{
				`sum by (kind) (rate(spotworker_job_failures_total` + window + `)) / (sum by (kind) (rate(spotworker_job_failures_total` + window +
					`)) + sum by (kind) (rate(spotworker_job_duration_seconds_count` + window + `)))`, "{{kind}}",
			}}},
			{"Failures by class", "ops", false, true, []Query{{`sum by (kind, class) (rate(spotworker_job_failures_total` + window + `)) > 0`,
				"{{kind}}: {{class}}"}}},
			{"Time in handlers, 90 %", "s", false, false, []Query{{quantile("0.9", "spotworker_job_run_duration_seconds", ", kind"), "{{kind}}"}}},
		}},
		{"Storage and platform", []Panel{
			{"Calls that fail", "ops", false, true,
				[]Query{{`sum by (status) (rate(spotworker_storage_calls_total{status=~"denied|throttled|5xx|unanswered"}` + window + `))`,
					"{{status}}"}}},
			{"Latency, 99 %", "s", false, false, []Query{{quantile("0.99", "spotworker_storage_call_duration_seconds", ", service"),
				"{{service}}"}}},
			{"Share of time without storage, or blind to evictions", "percentunit", false, false, []Query{
				{`sum(rate(spotworker_storage_unreachable_seconds_total` + window + `)) / count(spotworker_build_info)`, "storage unreachable"},
				{`sum(rate(spotworker_metadata_blind_seconds_total` + window + `)) / count(spotworker_build_info)`, "blind"},
			}},
		}},
		{"VMs", []Panel{
			{"Committed by VM", "ops", false, false, []Query{{`sum by (instance) (rate(spotworker_delivery_outcomes_total{outcome="committed"}` +
				window + `))`, "{{instance}}"}}},
			{"Failed by VM", "ops", false, false,
				[]Query{{`sum by (instance) (rate(spotworker_delivery_outcomes_total{outcome=~"failed|poisoned"}` + window + `))`, "{{instance}}"}}},
			{"Clock, scratch space, kills", "short", false, false, []Query{
				{`max(abs(spotworker_clock_offset_seconds))`, "worst clock, seconds"},
				{`min(spotworker_scratch_free_bytes / (spotworker_scratch_size_bytes > 0))`, "least scratch space, share"},
				{`sum(increase(spotworker_oom_kills_total[5m]))`, "out-of-memory kills in 5 min"},
			}},
		}},
	}
}
