package alerts

import (
	"fmt"
	"strings"
	"time"
)

const generated = "Generated from infra/alerts by: go test ./infra/alerts -update"

// Prometheus returns the rules as a file of Prometheus.
func Prometheus() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\ngroups:\n  - name: spotworker\n    interval: 15s\n    rules:\n", generated)
	for _, a := range All() {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |\n%s\n", a.Name, indented(a.Expr, 10))
		if a.For > 0 {
			fmt.Fprintf(&b, "        for: %s\n", short(a.For))
		}
		fmt.Fprintf(&b, "        labels:\n          severity: %s\n        annotations:\n          summary: %s\n          description: %s\n",
			a.Severity, quotedYAML(a.Summary), quotedYAML(a.Means))
	}
	return b.String()
}

// severities of Azure: 0 is critical, 4 is verbose.
func azureSeverity(severity string) int {
	if severity == "critical" {
		return 1
	}
	return 2
}

// Bicep returns the rules as the rule group of a module for Azure Monitor managed
// Prometheus. The shortest interval of Azure is a minute.
func Bicep() string {
	var b strings.Builder
	b.WriteString("// Alerts over the workers' metrics, for Azure Monitor managed Prometheus.\n// " + generated + `

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Start of the names.')
param prefix string

@description('Resource id of the Azure Monitor workspace that has the metrics.')
param metricsWorkspaceId string

@description('Resource ids of the action groups that alerts are sent to. Without one, alerts are seen in the portal only.')
param actionGroupIds string[]

var rules = [
`)
	for _, a := range All() {
		fmt.Fprintf(&b, "  {\n    name: '%s'\n    severity: %d\n    hold: '%s'\n    summary: '%s'\n    text: '%s'\n    expression: '''\n"+
			"%s\n'''\n  }\n",
			a.Name, azureSeverity(a.Severity), isoDuration(a.For), quotedBicep(a.Summary), quotedBicep(a.Means), a.Expr)
	}
	b.WriteString(`]

// A group has at most 20 rules.
resource groups 'Microsoft.AlertsManagement/prometheusRuleGroups@2023-03-01' = [
  for severity in [1, 2]: {
    name: '${prefix}-metrics-${severity == 1 ? 'critical' : 'warning'}'
    location: location
    tags: tags
    properties: {
      description: 'Alerts of the spotworker.'
      enabled: true
      scopes: [metricsWorkspaceId]
      interval: 'PT1M'
      rules: map(filter(rules, rule => rule.severity == severity), rule => {
        alert: rule.name
        enabled: true
        severity: rule.severity
        expression: trim(rule.expression)
        for: rule.hold
        labels: { severity: rule.severity == 1 ? 'critical' : 'warning' }
        annotations: { summary: rule.summary, description: rule.text }
        resolveConfiguration: { autoResolved: true, timeToResolve: 'PT5M' }
        actions: map(actionGroupIds, id => { actionGroupId: id })
      })
    }
  }
]
`)
	return b.String()
}

// Markdown returns the alerts as a list for the documentation.
func Markdown() string {
	var b strings.Builder
	for _, a := range All() {
		severity := ""
		if a.Severity == "critical" {
			severity = " (critical)"
		}
		fmt.Fprintf(&b, "- `%s`%s, %s. %s\n", a.Name, severity, a.Incident, a.Means)
	}
	return b.String()
}

func indented(text string, by int) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(text, "\n", "\n"+space)
}

// quotedYAML returns a text as a string of YAML in single quotes.
func quotedYAML(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// quotedBicep returns a text as the content of a string of Bicep.
func quotedBicep(text string) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`, `${`, `\${`).Replace(text)
}

// short returns a duration as Prometheus writes it.
func short(d time.Duration) string { return fmt.Sprintf("%dm", int(d.Minutes())) }

// isoDuration returns a duration as Azure writes it.
func isoDuration(d time.Duration) string { return fmt.Sprintf("PT%dM", int(d.Minutes())) }
