package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

const (
	foundation = "modules/foundation.bicep"
	typesFile  = "modules/types.bicep"
)

// entries are the files that a person deploys.
var entries = []string{"main.bicep", "fleet.bicep", "single.bicep"}

// checkNames: queues, containers and keys of metadata have the names that the code uses.
func checkNames(d deployment, tell report) {
	const prefix = "some-prefix"
	names, err := azure.NamesFor(prefix, "")
	if err != nil {
		tell(foundation, 0, "prefix %s: %v", prefix, err)
		return
	}
	for key, want := range map[string]string{
		"queue": names.Queue, "first": names.First, "onDemand": names.OnDemand, "poison": names.Poison,
		"records": names.Records, "payloads": names.Payloads, "workers": names.Workers, "control": names.Control, "outputs": names.Outputs,
	} {
		source := text(at(named(d[foundation].Variables, "names"), key))
		got := strings.Trim(strings.ReplaceAll(source, "${prefix}", prefix), "'")
		if got != want {
			tell(foundation, 0, "name of %s is %s, want %s", key, got, want)
		}
	}
	shard := strings.Replace(queue.ShardName("${prefix}-jobs", 7), "7", "${i}", 1)
	needWords(d, foundation, tell, "i => i == 0 ? '${prefix}-jobs' : '"+shard+"')")
	needWords(d, "modules/storage.bicep", tell, "  shards: string(", "  shardstaken: string(")
	for _, f := range entries {
		for _, p := range d[f].Params {
			if p.Name == "prefix" && p.Default != azure.DefaultPrefix {
				tell(f, p.Line, "prefix is %s, want %s", text(p.Default), azure.DefaultPrefix)
			}
		}
	}
}

// checkBounds: parameters have the bounds of the code that reads them.
func checkBounds(d deployment, tell report) {
	shards := fmt.Sprintf("@maxValue(%d)\n", queue.MaxShards)
	for _, name := range []string{"main.bicep", "fleet.bicep"} {
		needWords(d, name, tell, shards+"param queueShards int", shards+"param queueShardsTaken int")
	}
	const messageDays = 7
	needWords(d, typesFile, tell,
		// No record may go before the messages of its job.
		fmt.Sprintf("@minValue(%d)\n  records: int\n", messageDays+1))
}

// checkLocations: one region and one set of tags for all, handed down from the entry.
func checkLocations(d deployment, tell report) {
	for name, f := range d {
		inModule := strings.HasPrefix(name, "modules/")
		for _, p := range f.Params {
			if p.Name == "location" && (p.Default != nil) == inModule {
				tell(name, p.Line, "location has the default %q; the entry has one and modules have none", text(p.Default))
			}
		}
		for _, r := range f.Resources {
			location := text(at(r.Body, "location"))
			global := r.Type == "Microsoft.Insights/activityLogAlerts"
			if location != "" && location != "location" && !(global && location == "'global'") {
				tell(name, r.Line, "location of %s is %s, want the parameter", r.Symbol, location)
			}
			if tags := text(at(r.Body, "tags")); location != "" && tags != "tags" && r.Type != "Microsoft.Authorization/policyAssignments" {
				tell(name, r.Line, "tags of %s are %q, want the deployment's: costs are counted by them", r.Symbol, tags)
			}
		}
	}
}

// longestDeployment is how many characters the name of a deployment may have,
// and longestPrefix how many of them main.bicep leaves to the prefix.
const (
	longestDeployment = 64
	longestPrefix     = 30
)

// checkDeploymentNames: two modules under one name would be one deployment to
// Azure, and overwrite each other; a name that is too long is refused.
func checkDeploymentNames(d deployment, tell report) {
	for _, entry := range entries {
		first := map[string]string{}
		for _, name := range []string{entry, foundation, "modules/log-association.bicep"} {
			for _, m := range d[name].Modules {
				called := text(at(m.Body, "name"))
				if other, taken := first[called]; taken {
					tell(name, m.Line, "modules %s and %s are both deployed as %s", other, m.Symbol, called)
				}
				first[called] = m.Symbol

				rest, found := strings.CutPrefix(strings.Trim(called, "'"), "${prefix}")
				if !found || strings.Contains(strings.ReplaceAll(rest, "${i}", "0"), "$") {
					tell(name, m.Line, "module %s is deployed as %s, want ${prefix} and literal text", m.Symbol, called)
				} else if n := longestPrefix + len(rest); n > longestDeployment {
					tell(name, m.Line, "name of module %s has up to %d characters, Azure takes %d", m.Symbol, n, longestDeployment)
				}
			}
		}
	}
}

// longest is how many characters names may have, of resources that begin with the
// prefix.
var longest = map[string]int{
	"Microsoft.Network/virtualNetworks": 64, "Microsoft.Network/networkSecurityGroups": 80, "Microsoft.Network/natGateways": 80,
	"Microsoft.Network/publicIPAddresses": 80, "Microsoft.OperationalInsights/workspaces": 63,
	"Microsoft.Insights/dataCollectionEndpoints": 44, "Microsoft.Insights/dataCollectionRules": 64,
	"Microsoft.Insights/scheduledQueryRules": 260, "Microsoft.Insights/activityLogAlerts": 260,
	"Microsoft.ManagedIdentity/userAssignedIdentities": 128, "Microsoft.Authorization/policyAssignments": 64,
}

// checkNameLengths: with the longest prefix no name is longer than Azure takes.
func checkNameLengths(d deployment, tell report) {
	for name, f := range d {
		for _, r := range f.Resources {
			most, known := longest[r.Type]
			rest, found := strings.CutPrefix(strings.Trim(text(at(r.Body, "name")), "'"), "${prefix}")
			if r.Existing || !known || !found {
				continue
			}
			if n := longestPrefix + len(rest); n > most {
				tell(name, r.Line, "name of %s has up to %d characters, Azure takes %d (%s)", r.Symbol, n, most, namesPage)
			}
		}
	}
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			if p.Name == "prefix" && !slices.Contains(p.Decorators, fmt.Sprintf("@maxLength(%d)", longestPrefix)) {
				tell(entry, p.Line, "prefix has not at most %d characters", longestPrefix)
			}
		}
	}
}

// needWords tells of words that a file must have and does not.
func needWords(d deployment, path string, tell report, words ...string) {
	for _, word := range words {
		if !strings.Contains(d[path].source, word) {
			tell(path, 0, "%q is not there", word)
		}
	}
}
