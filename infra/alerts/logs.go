package alerts

import (
	"fmt"
	"strings"
)

// LogRule is an alert over the workers' log, for a deployment that collects no metrics. It
// fires when its query returns more rows than the threshold. A worker's log tells less
// than its metrics do, and later: lines reach the workspace within minutes, and a query
// runs every five.
type LogRule struct {
	Name      string // of the resource, behind the deployment's prefix
	Title     string
	Text      string // may use the parameters of the module, as in ${poisonPerHour}
	Why       string // a comment on the query
	Severity  int    // of Azure: 1 is an error, 3 informational
	Query     string // in KQL, in one line; may use the parameters too
	Threshold string // a number, or a parameter
	Window    string // how far back the query sees
	Frequency string // how often it runs
}

// LogRules returns those of all alerts.
func LogRules() (rules []LogRule) {
	for _, a := range All() {
		if a.Log != nil {
			rules = append(rules, *a.Log)
		}
	}
	return rules
}

// BicepLogRules returns the rules as a variable of Bicep.
func BicepLogRules() string {
	var b strings.Builder
	b.WriteString("var rules = [\n")
	for _, r := range LogRules() {
		fmt.Fprintf(&b, "  {\n    name: '%s'\n    title: '%s'\n    text: '%s'\n    severity: %d\n", r.Name, inBicep(r.Title), inBicep(r.Text),
			r.Severity)
		if r.Why != "" {
			fmt.Fprintf(&b, "    // %s\n", r.Why)
		}
		fmt.Fprintf(&b, "    query: '%s'\n    operator: 'GreaterThan'\n    threshold: %s\n    window: '%s'\n    frequency: '%s'\n  }\n",
			inBicep(r.Query), r.Threshold, r.Window, r.Frequency)
	}
	b.WriteString("]\n")
	return b.String()
}

// inBicep returns a text as the content of a string of Bicep in which parameters are
// replaced.
func inBicep(text string) string { return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) }
