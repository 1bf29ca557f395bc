package policy

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/storage/azure"
)

// entries are the files that a person deploys.
var entries = []string{"main.bicep", "fleet.bicep", "single.bicep"}

// checkNames: queues and containers have the names that the code uses.
func checkNames(d deployment, tell report) {
	const prefix = "some-prefix"
	names, err := azure.NamesFor(prefix, "")
	if err != nil {
		tell("modules/foundation.bicep", 0, "prefix %s: %v", prefix, err)
		return
	}
	for key, want := range map[string]string{
		"queue": names.Queue, "onDemand": names.OnDemand, "poison": names.Poison,
		"records": names.Records, "payloads": names.Payloads, "workers": names.Workers, "control": names.Control, "outputs": names.Outputs,
	} {
		source := text(at(named(d["modules/foundation.bicep"].Variables, "names"), key))
		got := strings.Trim(strings.ReplaceAll(source, "${prefix}", prefix), "'")
		if got != want {
			tell("modules/foundation.bicep", 0, "name of %s is %s, want %s", key, got, want)
		}
	}
	for _, f := range entries {
		for _, p := range d[f].Params {
			if p.Name == "prefix" && p.Default != azure.DefaultPrefix {
				tell(f, p.Line, "prefix is %s, want %s", text(p.Default), azure.DefaultPrefix)
			}
		}
	}
	needWords(d, "modules/storage.bicep", tell,
		"for name in concat(names.jobs, [names.onDemand, names.poison]): {", "metadata: name == names.queue ? union(shards, spread) : {}",
		"shards: string(queueShards)", "shardstaken: string(length(names.jobs))",
		"[names.records, names.payloads, names.outputs]", "first ? [names.workers, names.control, names.packages] : []")
	checkSpread(d, tell)
}

// checkSpread: the deployment's record of the accounts over which jobs are spread lets no
// id that is put again run twice, and takes no account away.
func checkSpread(d deployment, tell report) {
	const foundation = "modules/foundation.bicep"
	for name, want := range map[string]string{
		"moreNames": "moreAccounts.?names ?? []", "putOn": "moreAccounts.?putOn ?? 1", "chosenIdsOn": "moreAccounts.?chosenIdsOn ?? 1",
		"spreadOver":    "join(take(concat([accountName], moreNames), putOn), ',')",
		"spreadChecked": "empty(spreadRefusal) ? spreadOver : fail(spreadRefusal)",
		"checkedPrefix": "empty(spreadRefusal) ? prefix : fail(spreadRefusal)",
		"spread":        "moreAccounts == null && empty(recordedAccounts) ? {} : { accounts: spreadChecked, accountids: string(chosenIdsOn) }",
	} {
		if got := text(named(d[foundation].Variables, name)); got != want {
			tell(foundation, 0, "%s is %s, want %s", name, got, want)
		}
	}
	refusal := text(named(d[foundation].Variables, "spreadRefusal"))
	for _, condition := range []string{
		"putOn > 1 + length(moreNames) ? 'moreAccounts.putOn is ", ": chosenIdsOn > putOn ? '",
		": contains(workerSettings, 'SPOTWORKER_MORE_ACCOUNT') ? '", ": empty(recordedAccounts) ? '' :",
		"!startsWith('${spreadOver},', '${recordedAccounts},') ? '", ": chosenIdsOn != recordedChosenIdsOn ? '",
	} {
		if !strings.Contains(refusal, condition) {
			tell(foundation, 0, "spreadRefusal has no condition %q: it is %s", condition, refusal)
		}
	}
	members := []string{"  names: string[]\n", "  putOn: int\n", "  chosenIdsOn: int\n"} // none has a default
	needWords(d, "modules/types.bicep", tell, members...)
	for _, f := range entries {
		for _, p := range d[f].Params {
			if p.Name == "recordedAccounts" && p.Default != "" || p.Name == "recordedChosenIdsOn" && text(p.Default) != "0" {
				tell(f, p.Line, "%s is %s without tools/deploy.sh, want nothing", p.Name, text(p.Default))
			}
		}
	}
}

// checkLocations: one region for all, handed down from the entry.
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
		}
		for _, m := range f.Modules {
			if got := text(at(m.Body, "params", "location")); got != "" && got != "location" {
				tell(name, m.Line, "location of module %s is %s, want the parameter", m.Symbol, got)
			}
		}
	}
}

// checkWired: every module is used, by name or for its types, and each entry
// deploys the foundation.
func checkWired(d deployment, tell report) {
	used := map[string]bool{}
	for name, f := range d {
		for _, m := range f.Modules {
			used[path.Join(path.Dir(name), m.Path)] = true
		}
		for other := range d {
			relative := strings.TrimPrefix(other, "modules/")
			if strings.Contains(f.source, "} from '"+relative+"'") || strings.Contains(f.source, " as vm from '"+relative+"'") {
				used[other] = true
			}
		}
	}
	for name := range d {
		if strings.HasPrefix(name, "modules/") && !used[name] {
			tell(name, 0, "no file uses this module")
		}
	}
	checkDeploymentNames(d, tell)
	for _, entry := range entries {
		if !strings.Contains(d[entry].source, "module foundation 'modules/foundation.bicep'") {
			tell(entry, 0, "the foundation is not deployed")
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
		for _, name := range []string{entry, "modules/foundation.bicep", "modules/log-association.bicep"} {
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

// checkDescribed: every parameter and output has a description.
func checkDescribed(d deployment, tell report) {
	for name, f := range d {
		if strings.HasSuffix(name, ".bicepparam") {
			continue
		}
		for _, p := range f.Params {
			if !described(p.Decorators) {
				tell(name, p.Line, "parameter %s has no description", p.Name)
			}
		}
		for _, o := range f.Outputs {
			if !described(o.Decorators) {
				tell(name, o.Line, "output %s has no description", o.Name)
			}
		}
	}
}

func described(decorators []string) bool {
	for _, decorator := range decorators {
		if strings.HasPrefix(decorator, "@description('") && len(decorator) > len("@description('...')") {
			return true
		}
	}
	return false
}

// capacities are the parameters that set the number of VMs of a scale set, each with the
// environment variable that tools/deploy.sh sets to the number that there are.
var capacities = map[string]string{"capacity": "CAPACITY", "onDemandCapacity": "ONDEMAND_CAPACITY"}

var takesTemplate = regexp.MustCompile(`(?m)^using '([^']+)'`)

// checkCapacity: each parameter file takes over the numbers of running VMs. With a fixed
// number, or without one, the next deployment would delete the VMs that autoscale added.
// The number of a fleet is a target that nothing else changes.
func checkCapacity(d deployment, tell report) {
	for _, source := range slices.Sorted(maps.Keys(d)) {
		f := d[source]
		template := takesTemplate.FindStringSubmatch(f.source)
		if template == nil {
			continue
		}
		given := map[string]param{}
		for _, p := range f.Params {
			given[p.Name] = p
		}
		for name, variable := range capacities {
			if !d[template[1]].takes(name) || name == "onDemandCapacity" && given["onDemand"].Name == "" {
				continue
			}
			form := regexp.MustCompile(`(?m)^param ` + name + ` = int\(readEnvironmentVariable\('` + variable + `', '\d+'\)\)$`)
			if !form.MatchString(f.source) {
				tell(source, given[name].Line, "%s is not read from %s, in which make deploy hands down the number of running VMs: the next "+
					"deployment would delete some", name, variable)
			}
		}
	}
}

// takes reports whether a template has a parameter.
func (f *file) takes(name string) bool {
	return f != nil && slices.ContainsFunc(f.Params, func(p param) bool { return p.Name == name })
}
