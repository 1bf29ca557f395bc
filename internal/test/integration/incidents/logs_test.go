//go:build integration

package incidents

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/infra/alerts"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// The log of an incident is recorded beside its scrapes: testdata/NAME.log.gz, a line of
// JSON for when the recording began, and one for each line of a worker that an alert over
// the log asks for, with the columns that it asks for.

// askedTexts are the messages, and askedColumns the columns, that log alerts ask for.
var (
	askedTexts   = regexp.MustCompile(`"([^"]+)"`)
	askedColumns = []string{"msg", "job_id", "enqueued_at", "queue", "messages", "since", "event_type", "event_source", "not_before"}
)

// begins is the first line of a recorded log.
type begins struct {
	Begun time.Time `json:"begun"`
}

// writeLog writes the lines of the workers that alerts ask for. Each has the VM's name and
// a tab before it.
func writeLog(t *testing.T, name string, begun time.Time, lines []string) {
	t.Helper()
	asked := map[string]bool{}
	for _, rule := range alerts.LogRules() {
		for _, m := range askedTexts.FindAllStringSubmatch(rule.Query, -1) {
			asked[m[1]] = true
		}
	}
	file, err := os.Create(filepath.Join("testdata", name+".log.gz"))
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	packed := gzip.NewWriter(file)
	defer packed.Close()
	out := json.NewEncoder(packed)
	err = out.Encode(begins{begun.UTC()})
	for _, line := range lines {
		vm, text, _ := strings.Cut(line, "\t")
		var all map[string]any
		if json.Unmarshal([]byte(text), &all) != nil || !asked[str(all["msg"])] {
			continue
		}
		kept := map[string]any{"Computer": vm, "TimeGenerated": all["time"]}
		for _, column := range askedColumns {
			if all[column] != nil {
				kept[column] = all[column]
			}
		}
		if err == nil {
			err = out.Encode(kept)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func str(v any) string { s, _ := v.(string); return s }

// readLog returns the recorded lines as rows of the table of the log, and when the
// recording began.
func readLog(t *testing.T, name string) (begun time.Time, rows []row) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(plain)
	for lines.Scan() {
		if begun.IsZero() {
			var first begins
			if err := json.Unmarshal(lines.Bytes(), &first); err != nil {
				t.Fatal(err)
			}
			begun = first.Begun
			continue
		}
		r := row{}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		for _, column := range []string{"TimeGenerated", "enqueued_at", "since", "not_before"} {
			if text, ok := r[column].(string); ok {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				r[column] = at
			}
		}
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return begun, rows
}

// agents returns the rows of the agents' table of heartbeats: one a minute of each VM
// whose worker was scraped then.
func agents(t *testing.T, r recorded, begun time.Time) (rows []row) {
	t.Helper()
	instance := regexp.MustCompile(`^spotworker_build_info\{instance="([^"]+)"`)
	for _, s := range r.series {
		m := instance.FindStringSubmatch(s[0])
		if m == nil {
			continue
		}
		tick := 0
		for part := range strings.FieldsSeq(s[1]) {
			value, times, repeated := strings.Cut(part, "x")
			n := 1
			if repeated {
				var err error
				if n, err = strconv.Atoi(times); err != nil {
					t.Fatal(err)
				}
			}
			there := !strings.HasPrefix(part, "_") && part != "stale"
			if repeated && there && strings.Contains(value, "+") {
				n++ // VALUE+0xN is N more
			}
			for range n {
				if tick++; there && tick%4 == 0 {
					rows = append(rows, row{"Computer": m[1], "TimeGenerated": begun.Add(time.Duration(tick) * every)})
				}
			}
		}
	}
	return rows
}

// windows are the times that log alerts have.
var windows = map[string]time.Duration{
	"PT5M": 5 * time.Minute, "PT1H": time.Hour, "PT6H": 6 * time.Hour, "P1D": 24 * time.Hour, "P2D": 48 * time.Hour,
}

// fires returns whether a log alert would fire at a moment. Its parameters are the
// deployment's defaults, but an hour for the oldest job.
func fires(t *testing.T, rule alerts.LogRule, log, heartbeats []row, now time.Time) bool {
	t.Helper()
	window := windows[rule.Window]
	if window == 0 {
		t.Fatalf("alert %s has the window %s, which this test does not know", rule.Name, rule.Window)
	}
	seen := func(rows []row) []row {
		return slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
			at, _ := r["TimeGenerated"].(time.Time)
			return at.After(now) || !at.After(now.Add(-window))
		})
	}
	query := strings.NewReplacer("${tableName}", "Log", "${oldestJobHours}", "1").Replace(rule.Query)
	rows, err := evaluate(query, map[string][]row{"Log": seen(log), "Heartbeat": seen(heartbeats)}, now)
	if err != nil {
		t.Fatalf("alert %s: %v", rule.Name, err)
	}
	return len(rows) > threshold(t, rule)
}

// threshold returns a rule's, from the deployment's defaults if it is a parameter.
func threshold(t *testing.T, rule alerts.LogRule) int {
	t.Helper()
	if n, err := strconv.Atoi(rule.Threshold); err == nil {
		return n
	}
	text, err := os.ReadFile(filepath.Join(repository.Root(t), "infra", "bicep", "main.bicep"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`param ` + rule.Threshold + ` int = (\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("main.bicep has no default for %s", rule.Threshold)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// loggedLater is how long after the end of a recording without workers its alert may take:
// nothing would be logged then.
const loggedLater = 15 * time.Minute

// TestLogAlerts replays each incident against the alerts over the log, whose queries are
// evaluated every minute of it: the incident's alerts fire, and none before it begins,
// nor in the calm time. An incident that a log cannot show has no such alert.
func TestLogAlerts(t *testing.T) {
	byMetric := map[string]string{}
	for _, a := range alerts.All() {
		if a.Log != nil {
			byMetric[a.Name] = a.Log.Name
		}
	}
	all := incidents()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			r, want := read(t, name), byMetric[all[name].alert]
			begun, log := readLog(t, name)
			if len(log) == 0 {
				t.Fatal("no line was recorded")
			}
			heartbeats := agents(t, r, begun)
			onset := begun.Add(time.Duration(r.onset) * every)
			end := begun.Add(time.Duration(r.ticks) * every)
			if want == "no-workers" {
				end = end.Add(loggedLater)
			}
			fired := map[string]time.Duration{}
			for now := begun.Add(time.Minute); !now.After(end); now = now.Add(time.Minute) {
				for _, rule := range alerts.LogRules() {
					if _, known := fired[rule.Name]; !known && fires(t, rule, log, heartbeats, now) {
						fired[rule.Name] = now.Sub(onset)
					}
				}
			}
			for _, alert := range slices.Sorted(maps.Keys(fired)) {
				if r.onset == 0 || fired[alert] <= 0 {
					t.Errorf("%s fires %s after the onset, without cause", alert, fired[alert])
				}
				t.Logf("%s holds %s after the onset", alert, fired[alert].Round(time.Second))
			}
			if _, ok := fired[want]; !ok && want != "" {
				t.Errorf("%s does not fire", want)
			}
		})
	}
}
