package policy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// capacities are the parameters that set the number of VMs of a scale set or fleet, each with the
// environment variable that tools/deploy.sh sets to the number that there are.
var capacities = map[string]string{"capacity": "CAPACITY", "spotCapacity": "CAPACITY", "onDemandCapacity": "ONDEMAND_CAPACITY"}

var takesTemplate = regexp.MustCompile(`(?m)^using '([^']+)'`)

// checkCapacity: each parameter file takes over the numbers of running VMs. With a fixed
// number, or without one, the next deployment would delete VMs that autoscale or spotctl scale
// added. A fleet has the version in its name, as tools/deploy.sh has it, since a fleet with
// another version would be refused.
func checkCapacity(d deployment, tell report) {
	if got := text(named(d["fleet.bicep"].Variables, "fleetName")); got != "'${prefix}-fleet-${replace(applicationVersion, '.', '-')}'" {
		tell("fleet.bicep", 0, "the name of a fleet is %s, and not that of tools/deploy.sh", got)
	}
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

var environmentVariable = regexp.MustCompile(`readEnvironmentVariable\('(\w+)'`)

// checkVariables: the scripts set, or ask for, each variable that a parameter file reads.
func checkVariables(d deployment, tell report) {
	scripts, err := filepath.Glob("../../tools/deploy*.sh")
	if err != nil || len(scripts) == 0 {
		tell("main.bicep", 0, "no scripts: %v", err)
	}
	known := d["main.bicep"].source // whose error messages ask for one
	for _, name := range append(scripts, "../../docs/deploy.md") {
		source, err := os.ReadFile(name)
		if err != nil {
			tell("main.bicep", 0, "%v", err)
		}
		known += string(source)
	}
	for name, f := range d {
		for _, m := range environmentVariable.FindAllStringSubmatch(f.source, -1) {
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(known) {
				tell(name, 0, "nothing sets the variable %s", m[1])
			}
		}
	}
}

// changed are parameters of modules that differ from the file's parameter of that name.
var changed = strings.Fields(`
	foundation.workerSettings foundation.packageCommands foundation.logFiles foundation.otherSubnets spot.image spot.restore
	regular.image regular.vmSize regular.capacity spotAutoscale.jobsPerInstance spotAutoscale.times regularAutoscale.times
	regularAutoscale.minInstances regularAutoscale.maxInstances`)

// crossings are parameters that could get the value of another set of VMs, by module. Roles
// come first: VMs and the gallery take their identity from the module that assigned its roles.
var crossings = map[string]map[string]string{
	"foundation": {"otherSubnets": "union(otherSubnets, regionSubnets)"},
	"spot": {"scaleSetName": "'${prefix}-spot'", "identityId": "foundation.outputs.workerIdentityId",
		"packageId": "foundation.outputs.packageId"},
	"regular": {"scaleSetName": "'${prefix}-ondemand'", "identityId": "foundation.outputs.onDemandIdentityId",
		"packageId": "foundation.outputs.onDemandPackageId", "vmSize": "onDemandVmSize", "capacity": "onDemandCapacity"},
	"spotAutoscale": {"scaleSetName": "'${prefix}-spot'", "queueNames": "foundation.outputs.names.jobs", "times": "scaleTimes",
		"publisherIds": "empty(depthsOf) ? [] : foundation.outputs.workerPrincipalIds"},
	"regularAutoscale": {"scaleSetName": "'${prefix}-ondemand'", "queueNames": "[map[$expr:foundation.outputs.names.onDemand]]",
		"publisherIds": "[]",
		"minInstances": "onDemandMinInstances", "maxInstances": "onDemandMaxInstances"},
	"fleet":               {"identityId": "foundation.outputs.workerIdentityId", "packageId": "foundation.outputs.packageId"},
	"machine":             {"identityId": "foundation.outputs.workerIdentityId", "packageId": "foundation.outputs.packageId"},
	"workerRoles":         {"principalId": "identities.outputs.worker.principalId", "takesOnDemand": "false"},
	"onDemandWorkerRoles": {"principalId": "identities.outputs.onDemandWorker!.principalId", "takesOnDemand": "true"},
	"galleryRoles":        {"principalId": "identities.outputs.gallery.principalId"},
	"gallery":             {"identityId": "galleryRoles.outputs.identityId"},
}

// checkHandedDown: a module gets every parameter that its file and the module's both have,
// where Azure would take a default in silence, and the others from the right set of VMs.
func checkHandedDown(d deployment, tell report) {
	left := maps.Clone(crossings)
	for _, name := range slices.Sorted(maps.Keys(d)) {
		f := d[name]
		for _, m := range f.Modules {
			given, _ := at(m.Body, "params").(map[string]any)
			for _, p := range d["modules/"+filepath.Base(m.Path)].Params {
				value, has := given[p.Name]
				switch got := text(value); {
				case !f.takes(p.Name):
				case !has:
					tell(name, m.Line, "module %s does not get %s", m.Symbol, p.Name)
				case got != p.Name && !slices.Contains(changed, m.Symbol+"."+p.Name):
					tell(name, m.Line, "%s of %s is %s, want the parameter", p.Name, m.Symbol, got)
				}
			}
			for key, want := range crossings[m.Symbol] {
				if got := text(given[key]); got != want {
					tell(name, m.Line, "%s of %s is %s, want %s", key, m.Symbol, got, want)
				}
			}
			delete(left, m.Symbol)
		}
	}
	for missing := range left {
		tell("main.bicep", 0, "there is no module %s", missing)
	}
	for output, want := range map[string]string{
		"workerIdentityId":   "workerRoles.outputs.identityId",
		"onDemandIdentityId": "onDemand ? onDemandWorkerRoles!.outputs.identityId : ''",
		"packageId":          "stage == 'Foundation' ? '' : version!.outputs.versionId",
		"onDemandPackageId":  "stage != 'Foundation' && onDemand ? onDemandVersion!.outputs.versionId : ''",
	} {
		if got := text(named(d[foundation].Outputs, output)); got != want {
			tell(foundation, 0, "output %s is %s, want %s", output, got, want)
		}
	}
}

var idProperty = regexp.MustCompile(`(?m)^ +(principalId|clientId): (\w+)!?\.properties\.(\w+)$`)

// checkClientIDs: workers sign in with the client id of their own identity.
func checkClientIDs(d deployment, tell report) {
	needWords(d, foundation, tell, "{ AZURE_CLIENT_ID: identities.outputs.worker.clientId }",
		"AZURE_CLIENT_ID: identities.outputs.onDemandWorker!.clientId")
	const identities = "modules/identities.bicep"
	found := idProperty.FindAllStringSubmatch(d[identities].source, -1)
	for _, m := range found {
		if m[1] != m[3] {
			tell(identities, 0, "%s of %s is its %s", m[1], m[2], m[3])
		}
	}
	if len(found) != 6 {
		tell(identities, 0, "%d ids of identities, want 6", len(found))
	}
}

var moduleIndex = regexp.MustCompile(`\b([A-Za-z_]\w*)\[[^\]]*\]!?\.outputs\b`)

// checkIndexes: nothing takes an output of one module of a loop. Azure may evaluate the
// branch of a condition that is not taken, and a loop is empty or shorter there.
func checkIndexes(d deployment, tell report) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		for _, m := range moduleIndex.FindAllStringSubmatch(d[path].source, -1) {
			tell(path, 0, "%s is an output of a loop, which may be empty: make it a module of its own, with a condition", m[0])
		}
	}
}
