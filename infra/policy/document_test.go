package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	camelWord   = regexp.MustCompile("`([a-z]+[A-Z][A-Za-z]+)(: [^`]*)?`")
	metadataKey = regexp.MustCompile(`metadata\.([a-z0-9]+)`)
	stateRow    = regexp.MustCompile(`(?m)^\| (any|Running|Stopped) \| (deploy|evict|restart) \|`)
	resultWord  = regexp.MustCompile(`\b(Running|Stopped|Deleted);`)
)

// document returns a file of docs/.
func document(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestDocumentNamesParameters: what docs/deploy.md writes as a parameter or a
// property is one.
func TestDocumentNamesParameters(t *testing.T) {
	var all strings.Builder
	for _, f := range committed(t) {
		all.WriteString(f.source)
	}
	words := camelWord.FindAllStringSubmatch(document(t, "deploy.md"), -1)
	const fewest = 25
	if len(words) < fewest {
		t.Errorf("docs/deploy.md names %d parameters, want at least %d", len(words), fewest)
	}
	for _, word := range words {
		if !regexp.MustCompile(`\b` + word[1] + `\b`).MatchString(all.String()) {
			t.Errorf("docs/deploy.md names %s, which is nowhere in infra/bicep", word[1])
		}
	}
}

// TestDocumentReadsMetadata: the keys that commands in docs/deploy.md ask for
// are in docs/FORMATS.md.
func TestDocumentReadsMetadata(t *testing.T) {
	formats := document(t, "FORMATS.md")
	for _, key := range metadataKey.FindAllStringSubmatch(document(t, "deploy.md"), -1) {
		if !strings.Contains(formats, "| `"+key[1]+"` |") {
			t.Errorf("docs/deploy.md asks for metadata.%s, which docs/FORMATS.md does not list", key[1])
		}
	}
}

// TestDocumentHasEveryState: the table of Spot VM states has the nine rows of
// the guide, each with a state to end in and something in every column.
func TestDocumentHasEveryState(t *testing.T) {
	const rows, columns = 9, 8
	var got int
	for line := range strings.Lines(document(t, "deploy.md")) {
		if !stateRow.MatchString(line) {
			continue
		}
		got++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != columns {
			t.Errorf("%d columns, want %d, in the row %s", len(cells), columns, line)
		}
		for _, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("an empty cell in the row %s", line)
			}
		}
		if !resultWord.MatchString(line) {
			t.Errorf("no next state in the row %s", line)
		}
	}
	if got != rows {
		t.Errorf("%d rows of Spot VM states, want %d", got, rows)
	}
}

// TestDocumentCountsAlerts: the pages count the alerts that need no metrics.
func TestDocumentCountsAlerts(t *testing.T) {
	n := 0
	for _, f := range committed(t) {
		for _, r := range f.Resources {
			if r.Type == "Microsoft.Insights/scheduledQueryRules" || r.Type == "Microsoft.Insights/activityLogAlerts" {
				n++
			}
		}
	}
	if n != 2 {
		t.Errorf("infra/bicep has %d alerts that need no metrics, the pages count 2", n)
	}
	for page, want := range map[string]string{
		"deploy.md": "Two alerts need no metrics", "operating.md": "that collects no metrics has two alerts",
	} {
		if !strings.Contains(document(t, page), want) {
			t.Errorf("docs/%s does not say %q", page, want)
		}
	}
}

// TestDocumentNamesTheGallery: the gallery's name ends in a hash, so no command has it
// written out.
func TestDocumentNamesTheGallery(t *testing.T) {
	if strings.Contains(document(t, "deploy.md"), "--gallery-name spotworker") {
		t.Error("docs/deploy.md names the gallery spotworker, which has a hash behind its name")
	}
}

var (
	firstRunRow  = regexp.MustCompile(`(?m)^\| (\d+) \| (.*)$`)
	rowReference = regexp.MustCompile(`\b[Rr]ows? (\d+)(?: and (\d+))?\b`)
)

// rowsNamed are the subjects of rows to which other pages and the product refer.
var rowsNamed = map[string]string{
	"deploy.md 31": "VMs reach an account in another region", "deploy.md 32": "the second region's gallery reads packages",
}

// TestFirstRunRows: the rows are numbered from 1, each has every cell, and references to
// rows name rows that are about it.
func TestFirstRunRows(t *testing.T) {
	page := document(t, "first-run.md")
	rows := map[string]string{}
	for i, m := range firstRunRow.FindAllStringSubmatch(page, -1) {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("row %s comes as number %d", m[1], i+1)
		}
		rows[m[1]] = m[2]
		for cell := range strings.SplitSeq(strings.TrimSuffix(strings.ReplaceAll(m[2], `\|`, ""), "|"), "|") {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("row %s has an empty cell", m[1])
			}
		}
		if n := strings.Count(strings.ReplaceAll(m[2], `\|`, ""), "|"); n != 4 {
			t.Errorf("row %s has %d cells behind its number, want 4", m[1], n)
		}
	}
	const fewest = 33
	if len(rows) < fewest {
		t.Errorf("%d rows, want at least %d", len(rows), fewest)
	}
	for _, name := range []string{"first-run.md", "deploy.md"} {
		for _, m := range rowReference.FindAllStringSubmatch(document(t, name), -1) {
			for _, number := range m[1:] {
				about, named := rowsNamed[name+" "+number]
				if number != "" && rows[number] == "" || named && !strings.Contains(rows[number], about) {
					t.Errorf("docs/%s refers to row %s, which is %q, want %q", name, number, rows[number], about)
				}
			}
		}
	}
}

// TestDocumentCountsSizes: the pages count the sizes and zones of production.bicepparam, and
// the queues of a deployment.
func TestDocumentCountsSizes(t *testing.T) {
	d := committed(t)
	counts := map[string]int{}
	for _, p := range d["production.bicepparam"].Params {
		list, _ := p.Value.([]any)
		counts[p.Name] = len(list)
	}
	if counts["vmSizes"] != 5 || counts["zones"] != 3 {
		t.Errorf("production.bicepparam has %d sizes and %d zones, the pages count 5 and 3", counts["vmSizes"], counts["zones"])
	}
	for page, want := range map[string]string{
		"deploy.md": "five sizes, three zones", "first-run.md": "five sizes, a floor of regular VMs and three zones",
		"SECURITY.md": "the three queues",
	} {
		if !strings.Contains(document(t, page), want) {
			t.Errorf("docs/%s does not say %q", page, want)
		}
	}
	const queues = "for name in concat(names.jobs, [names.onDemand, names.poison]): {"
	if !strings.Contains(d["modules/storage.bicep"].source, queues) {
		t.Error("a deployment has other queues than the three that SECURITY.md counts")
	}
}

// TestVersionsOutsideOfTemplates: scripts and pages ask Azure by the version that the
// templates have for the same type.
func TestVersionsOutsideOfTemplates(t *testing.T) {
	version := ""
	for _, r := range committed(t)["modules/storage.bicep"].Resources {
		if strings.HasSuffix(r.Type, "/queueServices") {
			version = r.APIVersion
		}
	}
	script, err := os.ReadFile("../../tools/deploy-checks.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{"deploy-checks.sh": string(script), "first-run.md": document(t, "first-run.md")} {
		asked := regexp.MustCompile(`/queueServices/[^ ]*\?api-version=([0-9-]+)`).FindAllStringSubmatch(source, -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for no queues", name)
		}
		for _, m := range asked {
			if m[1] != version {
				t.Errorf("%s asks by version %s, the templates by %s", name, m[1], version)
			}
		}
	}
}

// rowTopics are subjects that need a row, with a word of the row.
var rowTopics = map[string]string{
	"run-command on Windows": "RunPowerShellScript", "pushes of metrics": "https://monitor.azure.com", "alerts": "humanizePercentage",
	"prices": "spotctl prices", "plan": "spotctl plan", "repairs": "AutomaticRepairs", "notices of on-demand VMs": "`Terminate`",
	"a deallocated VM": "`az vm start`", "events elsewhere": "`publishEvents`", "cloud-init": "cloud-init status", "advice": "2024-07-09",
	"storage versions": "`InvalidHeaderValue`", "a second account": "`putOn: 2`", "Put Blob": "`If-None-Match: *`",
	"expiry": "beyond its expiry", "cost of a Get": "a Get of 32",
}

// TestFirstRunRowsNameTheirPart: from the first row about Windows on, each names a part of
// the repository that depends on its claim, and something to do. No topic is missing.
func TestFirstRunRowsNameTheirPart(t *testing.T) {
	const first = 33
	page := document(t, "first-run.md")
	path := regexp.MustCompile("`([a-z-]+[./][a-z./-]+)`")
	toDo := regexp.MustCompile("`|\\b[Rr]ow|\\bstep|\\bdeploy")
	for _, m := range firstRunRow.FindAllStringSubmatch(page, -1) {
		if number, _ := strconv.Atoi(m[1]); number < first {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(m[2], `\|`, ""), "|")
		there := false
		for _, name := range path.FindAllStringSubmatch(cells[0], -1) {
			for _, folder := range []string{"../..", "../bicep"} {
				_, err := os.Stat(filepath.Join(folder, name[1]))
				there = there || err == nil
			}
		}
		if !there {
			t.Errorf("row %s names no file or folder of the repository in its claim: %s", m[1], cells[0])
		}
		if !toDo.MatchString(cells[1]) {
			t.Errorf("row %s has no command: %s", m[1], cells[1])
		}
	}
	for topic, word := range rowTopics {
		found := false
		for _, m := range firstRunRow.FindAllStringSubmatch(page, -1) {
			found = found || strings.Contains(m[2], word)
		}
		if !found {
			t.Errorf("no row about %s has %s", topic, word)
		}
	}
}
