package policy

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// number returns the number in the file's first line of a setting, or in the default of
// a variable of the environment there; ok is false if there is none.
func (f *file) number(setting string) (n int, ok bool) {
	for _, line := range slices.Sorted(maps.Keys(f.settings(setting))) {
		n, err := strconv.Atoi(f.settings(setting)[line])
		return n, err == nil
	}
	return 0, false
}

// stopsUpdates is how many percent of a set's VMs may be unhealthy in an update: one batch, and
// on Spot also VMs that are evicted meanwhile.
var stopsUpdates = map[string]int{"modules/spot-scale-set.bicep": 50, "modules/regular-scale-set.bicep": 20}

var repairGrace = regexp.MustCompile(`gracePeriod: '(PT\w+)'`)

// checkProducts: values that are right each by itself fit together.
func checkProducts(d deployment, tell report) {
	const vm = "modules/vm.bicep"
	interval, _ := d[vm].number("intervalInSeconds")
	probes, _ := d[vm].number("numberOfProbes")
	grace, _ := d[vm].number("gracePeriod")
	// A restart of the worker takes up to 20 s, and must not look like an illness; and an
	// illness must be one before Azure's patience with a new VM ends.
	if unhealthyAfter := interval * probes; unhealthyAfter < 55 || unhealthyAfter > 300 || unhealthyAfter >= grace {
		tell(vm, 0, "a VM is unhealthy after %d probes every %d s, want 55 s to 300 s, within the grace of %d s", probes, interval, grace)
	}
	for _, path := range []string{"modules/spot-scale-set.bicep", "modules/regular-scale-set.bicep"} {
		checkRollout(d[path], path, time.Duration(interval)*time.Second, time.Duration(interval*probes)*time.Second, tell)
		m := repairGrace.FindStringSubmatch(d[path].source)
		if m == nil {
			tell(path, 0, "no grace before repairs")
			continue
		}
		// Azure would otherwise replace VMs that still initialize.
		if repair, ok := duration(m[1]); !ok || repair <= time.Duration(grace)*time.Second {
			tell(path, 0, "VMs are repaired after %s, which is within the %d s that they have to become healthy", m[1], grace)
		}
		batch, _ := d[path].number("maxBatchInstancePercent")
		for _, setting := range []string{"maxUnhealthyInstancePercent", "maxUnhealthyUpgradedInstancePercent"} {
			// A batch restarts its workers, which are unhealthy meanwhile.
			most, _ := d[path].number(setting)
			if batch > most {
				tell(path, 0, "a batch of %d %% is more than %s, %d %%: an update would stop itself", batch, setting, most)
			}
			if most != stopsUpdates[path] {
				tell(path, 0, "%s is %d %%, want %d %%: a broken version would reach more VMs, or an eviction end an update",
					setting, most, stopsUpdates[path])
			}
		}
	}
	checkAutoscaleTimes(d, tell)
}

// rolloutWithin is how long tools/deploy.sh waits for workers of a new version, unless
// WORKERS_WITHIN says otherwise.
var rolloutWithin = regexp.MustCompile(`minutes=\$\{WORKERS_WITHIN:-(\d+)\}`)

// checkRollout: an update in batches ends while tools/deploy.sh waits for its workers. A batch
// takes as long as its workers may be unhealthy. A pause has one more probe of all VMs.
func checkRollout(f *file, path string, interval, unhealthyAfter time.Duration, tell report) {
	script, err := os.ReadFile("../../tools/deploy-workers.sh")
	m := rolloutWithin.FindSubmatch(script)
	if err != nil || m == nil {
		tell(path, 0, "tools/deploy-workers.sh does not say how long it waits for workers (%v)", err)
		return
	}
	minutes, _ := strconv.Atoi(string(m[1]))
	within := time.Duration(minutes) * time.Minute
	batch, _ := f.number("maxBatchInstancePercent")
	lines := f.settings("pauseTimeBetweenBatches")
	if len(lines) == 0 || batch < 1 {
		tell(path, 0, "an update has no pauses, or no batches")
		return
	}
	batches := time.Duration((100 + batch - 1) / batch)
	for line, text := range lines {
		pause, _ := duration(strings.Trim(text, "'"))
		takes := batches*unhealthyAfter + (batches-1)*pause
		if pause < interval || takes > within {
			tell(path, line, "%d batches with pauses of %s take %s, want %s at most with pauses of %s at least",
				batches, pause, takes, within, interval)
		}
	}
}

// checkAutoscaleTimes: VMs are added sooner than removed, and each window has several
// readings of the queue.
func checkAutoscaleTimes(d deployment, tell report) {
	const path = "modules/autoscale.bicep"
	rules, _ := named(d[path].Variables, "rules").([]any)
	grain, _ := duration(plain(at(named(d[path].Variables, "metric"), "timeGrain")))
	window := map[string]time.Duration{}
	for _, rule := range rules {
		direction := plain(at(rule, "scaleAction", "direction"))
		window[direction], _ = duration(plain(at(rule, "metricTrigger", "timeWindow")))
		if window[direction] < 5*grain {
			tell(path, 0, "the rule to %s looks back %s over readings of %s, want five at least", direction, window[direction], grain)
		}
		cooldown, isDuration := duration(plain(at(rule, "scaleAction", "cooldown")))
		if isDuration && cooldown > time.Hour {
			tell(path, 0, "the rule to %s rests for %s, want an hour at most", direction, cooldown)
		}
	}
	if window["Increase"] > window["Decrease"] {
		tell(path, 0, "VMs are added after %s and removed after %s: a short job would cost VMs", window["Increase"], window["Decrease"])
	}
}

// plain returns a text, or nothing for an expression.
func plain(v value) string {
	s, _ := v.(string)
	return s
}

// fromEnvironment is a number that a parameter file reads, with its default.
var fromEnvironment = regexp.MustCompile(`^int\(readEnvironmentVariable\('\w+', '(\d+)'\)\)$`)

// amount returns the number that a parameter is given, or that its template gives it.
func (d deployment) amount(name, parameter string) (int, bool) {
	f := d[name]
	for _, p := range f.Params {
		if p.Name != parameter {
			continue
		}
		for _, v := range []value{p.Value, p.Default} {
			if n, ok := v.(float64); ok {
				return int(n), true
			}
			if m := fromEnvironment.FindStringSubmatch(text(v)); m != nil {
				n, err := strconv.Atoi(m[1])
				return n, err == nil
			}
		}
	}
	if m := takesTemplate.FindStringSubmatch(f.source); m != nil {
		return d.amount(m[1], parameter)
	}
	return 0, false
}

var rangeForm = regexp.MustCompile(`'(\d+\.\d+)\.\d+\.\d+/(\d+)'`)

// checkNumbers: the numbers of VMs of each file fit together, and into its network.
func checkNumbers(d deployment, tell report) {
	networks := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(name, "modules/") {
			continue
		}
		for _, pair := range [][2]string{
			{"minInstances", "maxInstances"}, {"onDemandMinInstances", "onDemandMaxInstances"}, {"capacity", "maxInstances"},
			{"minInstances", "capacity"}, {"onDemandCapacity", "onDemandMaxInstances"}, {"onDemandMinInstances", "onDemandCapacity"},
			{"baseRegularCount", "minInstances"}, {"regularCapacity", "spotCapacity"},
		} {
			less, given := d.amount(name, pair[0])
			more, also := d.amount(name, pair[1])
			if given && also && less > more {
				tell(name, 0, "%s is %d and %s %d: the first is at most the second", pair[0], less, pair[1], more)
			}
		}
		m := rangeForm.FindStringSubmatch(parameterText(d, name, "addressPrefix"))
		if m == nil {
			tell(name, 0, "no address range")
			continue
		}
		bits, _ := strconv.Atoi(m[2])
		vms := 5 // Azure's own addresses
		for _, parameter := range []string{"maxInstances", "onDemandMaxInstances", "spotCapacity", "regularCapacity"} {
			n, _ := d.amount(name, parameter)
			vms += n
		}
		if bits > 29 || 1<<(32-bits) < vms {
			tell(name, 0, "a network of /%d is too small for %d addresses", bits, vms)
		}
		networks[name] = m[1]
	}
	if networks["region.bicepparam"] == networks["main.bicep"] {
		tell("region.bicepparam", 0, "the network has the first region's addresses: the two could not be connected")
	}
}

// parameterText returns a parameter's value or its template's default, as Bicep writes it.
func parameterText(d deployment, name, parameter string) string {
	for _, p := range d[name].Params {
		if p.Name != parameter {
			continue
		}
		if p.Value != nil {
			return text(p.Value)
		}
		if p.Default != nil {
			return text(p.Default)
		}
	}
	if m := takesTemplate.FindStringSubmatch(d[name].source); m != nil {
		return parameterText(d, m[1], parameter)
	}
	return ""
}
