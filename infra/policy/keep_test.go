package policy

import "github.com/google/go-cmp/cmp"

// wantRetention is how long blobs are kept, in days after the last write, unless
// a parameter says otherwise.
var wantRetention = value(map[string]any{"records": 30.0, "payloads": 180.0, "workers": 7.0})

// checkRetention: records, payloads, presences and outputs go at their age and nothing
// else does; each age is a parameter.
func checkRetention(d deployment, tell report) {
	for _, path := range entries {
		for _, p := range d[path].Params {
			if p.Name != "retention" {
				continue
			}
			if diff := cmp.Diff(wantRetention, p.Default); diff != "" {
				tell(path, p.Line, "days that blobs are kept (-want +got):\n%s", diff)
			}
		}
		for _, m := range d[path].Modules {
			if got := text(at(m.Body, "params", "retention")); m.Symbol == "foundation" && got != "retention" {
				tell(path, m.Line, "the foundation keeps blobs for %q, want the parameter", got)
			}
		}
	}
	const path = "modules/storage.bicep"
	kept, _ := named(d[path].Variables, "kept").([]any)
	got := map[string]string{}
	for _, rule := range kept {
		got[plain(at(rule, "name"))] = text(at(rule, "container")) + " " + text(at(rule, "days"))
	}
	want := map[string]string{
		"records": "names.records retention.records", "payloads": "names.payloads retention.payloads",
		"logs": "'${names.payloads}/logs' retention.records", "workers": "names.workers retention.workers",
		"outputs": "names.outputs retention.?outputs ?? 180",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tell(path, 0, "rules for the age of blobs (-want +got):\n%s", diff)
	}
	needWords(d, path, tell, "for rule in kept: {", "prefixMatch: ['${rule.container}/']",
		"delete: { daysAfterModificationGreaterThan: rule.days }")
}

// checkAlerts: every alert is sent to the same action groups.
func checkAlerts(d deployment, tell report) {
	for path, want := range map[string]string{
		"modules/no-workers-alert.bicep":  "actions: { actionGroups: actionGroupIds }",
		"modules/prometheus-alerts.bicep": "actions: map(actionGroupIds, id => { actionGroupId: id })",
		"modules/eviction-alert.bicep":    "actionGroups: [for id in actionGroupIds: { actionGroupId: id }]",
	} {
		needWords(d, path, tell, want)
	}
	needWords(d, "modules/monitoring.bicep", tell, "destinations: ['workspace']")
	needWords(d, "modules/eviction-alert.bicep", tell, "{ field: 'category', equals: 'Administrative' }",
		"{ field: 'status', equals: 'Succeeded' }")
	given := map[string]bool{"noWorkersAlert": true, "evictionAlert": true, "prometheusAlerts": true, "foundation": true}
	for path, f := range d {
		for _, m := range f.Modules {
			if got := text(at(m.Body, "params", "actionGroupIds")); given[m.Symbol] && got != "actionGroupIds" {
				tell(path, m.Line, "%s tells %q, want actionGroupIds", m.Symbol, got)
			}
		}
	}
	if n := len(logAlerts(d)); n != 1 {
		tell("modules/no-workers-alert.bicep", 0, "%d alerts over the log, want 1: all others come from metrics", n)
	}
}

// logAlerts returns the queries of all alerts over the log.
func logAlerts(d deployment) (queries []string) {
	for _, f := range d {
		for _, r := range f.Resources {
			if r.Type == "Microsoft.Insights/scheduledQueryRules" && !r.Existing {
				query, _ := named(f.Variables, "query").(map[string]any)
				queries = append(queries, text(query))
			}
		}
	}
	return queries
}
