package alerts

import (
	"encoding/json"
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

// Sizes of Grafana's grid.
const (
	gridWidth   = 24
	panelHeight = 8
)

// Grafana returns the dashboard as a file that Grafana imports. It asks which source of
// data to use.
func Grafana() (string, error) {
	source := map[string]any{"type": "prometheus", "uid": "${source}"}
	var panels []any
	id, y := 0, 0
	for _, row := range Dashboard() {
		id++
		panels = append(panels, map[string]any{
			"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]any{"h": 1, "w": gridWidth, "x": 0, "y": y},
		})
		y++
		width := gridWidth / len(row.Panels)
		for i, p := range row.Panels {
			id++
			panels = append(panels, p.grafana(id, source, map[string]any{"h": panelHeight, "w": width, "x": i * width, "y": y}))
		}
		y += panelHeight
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": "spotworker", "uid": "spotworker", "tags": []string{"spotworker"}, "schemaVersion": 39, "version": 1,
		"description": generated, "editable": true, "refresh": "30s", "timezone": "browser",
		"time": map[string]any{"from": "now-1h", "to": "now"},
		"templating": map[string]any{"list": []any{map[string]any{
			"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus", "current": map[string]any{},
		}}},
		"panels": panels,
	}, "", "  ")
	return string(text) + "\n", err
}

func (p Panel) grafana(id int, source, position map[string]any) map[string]any {
	var targets []any
	for i, q := range p.Queries {
		targets = append(targets, map[string]any{
			"refId": string(rune('A' + i)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": source, "instant": p.Number, "range": !p.Number,
		})
	}
	kind := "timeseries"
	custom := map[string]any{"fillOpacity": 10}
	if p.Stacked {
		custom = map[string]any{"fillOpacity": 40, "stacking": map[string]any{"mode": "normal", "group": "A"}}
	}
	if p.Number {
		kind, custom = "stat", map[string]any{}
	}
	return map[string]any{
		"id": id, "type": kind, "title": p.Title, "datasource": source, "gridPos": position, "targets": targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.Unit, "min": 0, "custom": custom}, "overrides": []any{}},
	}
}
