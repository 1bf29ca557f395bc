package policy

import (
	"maps"
	"regexp"
	"slices"
)

// capacities are the parameters that set the number of VMs of a scale set, each with the
// environment variable that tools/deploy.sh sets to the number that there are.
var capacities = map[string]string{"capacity": "CAPACITY", "onDemandCapacity": "ONDEMAND_CAPACITY"}

var takesTemplate = regexp.MustCompile(`(?m)^using '([^']+)'`)

// checkCapacity: each parameter file takes the numbers of VMs from what runs. With a fixed
// number, or without one, the next deployment would delete the VMs that autoscale added.
// The number of a fleet is a target that nothing else changes.
func checkCapacity(d deployment, tell report) {
	for _, path := range slices.Sorted(maps.Keys(d)) {
		f := d[path]
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
				tell(path, given[name].Line, "%s is not read from %s, in which make deploy hands down the number of running VMs: the next "+
					"deployment would delete some", name, variable)
			}
		}
	}
}

// takes reports whether a template has a parameter.
func (f *file) takes(name string) bool {
	return f != nil && slices.ContainsFunc(f.Params, func(p param) bool { return p.Name == name })
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
