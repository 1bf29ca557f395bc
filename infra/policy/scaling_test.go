package policy

// newestVersion is how new a version of Azure's interface may be: a year old when
// this was written, since new ones reach regions late. SpotPlus needs a newer one.
const (
	newestVersion  = "2025-11-22"
	oldestVersion  = "2020-10-01"
	spotPlusSymbol = "plusScaleSet"
	// spotPlusVersion is the first that knows the priority SpotPlus.
	spotPlusVersion = "2026-04-01"
)

// checkVersions: each interface is in every region.
func checkVersions(d deployment, tell report) {
	for name, f := range d {
		for _, r := range f.Resources {
			if v := r.APIVersion; r.Symbol != spotPlusSymbol && (v > newestVersion || v < oldestVersion) {
				tell(name, r.Line, "%s is of version %s, want %s to %s", r.Symbol, v, oldestVersion, newestVersion)
			}
			if r.Symbol == spotPlusSymbol && r.APIVersion < spotPlusVersion {
				tell(name, r.Line, "%s is of version %s, and SpotPlus is known from %s on", r.Symbol, r.APIVersion, spotPlusVersion)
			}
		}
	}
}

// checkAlertTimes: the rule does not look less often than its window is long.
func checkAlertTimes(d deployment, tell report) {
	const name = "modules/no-workers-alert.bicep"
	for _, r := range d[name].Resources {
		window, _ := at(r.Body, "properties", "windowSize").(string)
		frequency, _ := at(r.Body, "properties", "evaluationFrequency").(string)
		w, ok := duration(window)
		f, also := duration(frequency)
		if !ok || !also || f > w {
			tell(name, r.Line, "%s looks every %s at a window of %s (%s)", r.Symbol, frequency, window, logAlertPage)
		}
	}
}

// checkDirections: one rule for each direction, with a margin between them. A profile that
// ends a time of the week bears the name by which Azure knows it as the usual profile.
func checkDirections(d deployment, tell report) {
	const name = "modules/autoscale.bicep"
	wants := map[string][2]string{
		"Increase": {"'GreaterThan'", "fromNone ? 0 : jobsPerInstance"},
		"Decrease": {"fromNone ? 'LessThanOrEqual' : 'LessThan'", "fromNone ? 0 : jobsPerInstance / 2"},
	}
	rules, _ := named(d[name].Variables, "rules").([]any)
	for _, rule := range rules {
		direction := plain(at(rule, "scaleAction", "direction"))
		got := [2]string{text(at(rule, "metricTrigger", "operator")), text(at(rule, "metricTrigger", "threshold"))}
		if got != wants[direction] {
			tell(name, 0, "the rule to %s is for %v, want %v (%s)", direction, got, wants[direction], autoscaleDesign)
		}
		delete(wants, direction)
	}
	for direction := range wants {
		tell(name, 0, "no rule has the direction %s (%s)", direction, autoscaleDesign)
	}
	needWords(d, name, tell, "name: string({ name: 'queue depth', for: time.name })")
}
