package policy

import "github.com/google/go-cmp/cmp"

// checkRetention: records, payloads, logs, heartbeats and outputs go, each at its own age, and
// nothing else does: no data and no request of an operator.
func checkRetention(d deployment, tell report) {
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
}
