package policy

import (
	"maps"
	"slices"
	"strings"
)

// made is when resources are made, how often and behind which others: all that have a
// condition, a loop or dependencies, and modules in loops. Conditions of modules are in
// madeIf.
var made = map[string]string{
	"modules/foundation.bicep moreStorage":             "for moreNames",
	"modules/foundation.bicep moreWorkerRoles":         "for moreNames",
	"modules/foundation.bicep moreOnDemandWorkerRoles": "for moreNames",
	"modules/foundation.bicep moreOperatorRoles":       "for moreNames",
	"modules/foundation.bicep moreStorageLogs":         "for moreNames",
	"modules/gallery.bicep applications":               "for applicationNames",
	"modules/identities.bicep regular":                 "if onDemand",
	"modules/log-association.bicep assignment":         "after [policyRoles]",
	"modules/metrics.bicep pushes":                     "for principalIds",
	"modules/network.bicep address":                    "if outbound == 'NatGateway'",
	"modules/network.bicep gateway":                    "if outbound == 'NatGateway'",
	"modules/operator-roles.bicep all":                 "for concat(names.jobs, [names.onDemand, names.poison])",
	"modules/operator-roles.bicep written": "for " +
		"concat([names.records, names.payloads, names.outputs], first ? [names.control, names.packages] : [], " +
		"map(dataContainers, c => c.name))",
	"modules/operator-roles.bicep handlesMessages": "for range(0, 2 + length(names.jobs))",
	"modules/operator-roles.bicep writesBlobs":     "for range(0, (first ? 5 : 3) + length(dataContainers))",
	"modules/operator-roles.bicep seesWorkers":     "if first",
	"modules/policy-roles.bicep assignments":       "for roleIds",
	"modules/single-vm.bicep logAgent":             "if sendLogs",
	"modules/spot-scale-set.bicep scaleSet":        "if priority == 'Spot'",
	"modules/storage.bicep queues":                 "for concat(names.jobs, [names.onDemand, names.poison])",
	"modules/storage.bicep containers": "for " +
		"concat( [names.records, names.payloads, names.outputs], first ? [names.workers, names.control, " +
		"names.packages] : [], map(dataContainers, c => c.name) )",
	"modules/storage.bicep lifecycle": "after [containers]",
	"modules/worker-roles.bicep jobs": "for names.jobs",
	"modules/worker-roles.bicep own": "for concat([names.records, names.payloads, names.outputs], first ? [names.workers] : " +
		"[])",
	"modules/worker-roles.bicep data":              "for dataContainers",
	"modules/worker-roles.bicep takesJobs":         "for range(0, length(names.jobs))",
	"modules/worker-roles.bicep takesOnDemandJobs": "if takesOnDemand",
	"modules/worker-roles.bicep movesJobs":         "for takesOnDemand ? [] : [roles.queueDataMessageSender, roles.queueDataReader]",
	"modules/worker-roles.bicep givesUp":           "for [roles.queueDataMessageSender, roles.queueDataReader]",
	"modules/worker-roles.bicep writesOwn":         "for range(0, first ? 4 : 3)",
	"modules/worker-roles.bicep readsControl":      "if first",
	"modules/worker-roles.bicep worksOnData":       "for dataContainers",
}

// checkMade: each resource is made as listed.
func checkMade(d deployment, tell report) {
	left := maps.Clone(made)
	hold := func(path, symbol string, line int, parts ...string) {
		got := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
		if got = strings.Join(strings.Fields(got), " "); got != made[path+" "+symbol] {
			tell(path, line, "%s is made %q, want %q", symbol, got, made[path+" "+symbol])
		}
		delete(left, path+" "+symbol)
	}
	word := func(word, what string) string {
		if what == "" {
			return ""
		}
		return word + " " + what
	}
	for _, path := range slices.Sorted(maps.Keys(d)) {
		for _, r := range d[path].Resources {
			if !r.Existing || r.Loop != "" {
				hold(path, r.Symbol, r.Line, word("if", r.Condition), word("for", r.Loop), word("after", listText(at(r.Body, "dependsOn"))))
			}
		}
		for _, m := range d[path].Modules {
			hold(path, m.Symbol, m.Line, word("for", m.Loop))
		}
	}
	for missing := range left {
		tell("main.bicep", 0, "there is no %s", missing)
	}
	for path, profile := range map[string]string{
		"modules/spot-scale-set.bicep":    "vm.osProfile('spot', adminUsername, sshPublicKey)",
		"modules/regular-scale-set.bicep": "vm.osProfile('ondemand', adminUsername, sshPublicKey)",
		"modules/fleet.bicep":             "vm.osProfile('fleet', adminUsername, sshPublicKey)",
	} {
		needWords(d, path, tell, profile)
	}
}
