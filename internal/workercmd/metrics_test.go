package workercmd

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/telemetry/metrics"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

var update = flag.Bool("update", false, "write the table of docs/operating.md")

const (
	metricsDocument = "../../docs/operating.md"
	tableBegin      = "<!-- generated: begin (go test ./internal/workercmd -run TestMetricsAreDocumented -update) -->\n"
	tableEnd        = "<!-- generated: end -->\n"
)

// TestMetricsAreDocumented holds the table of docs/operating.md to the metrics that a
// worker registers: names, kinds, labels and help texts.
func TestMetricsAreDocumented(t *testing.T) {
	f := &flags{Concurrency: 1}
	r := f.telemetry(slog.New(slog.DiscardHandler), systemdManager)
	// Series whose labels are not known in advance.
	r.Observe(observe.Polled{At: time.Now(), Result: preempt.PollAnswered})
	r.Observe(observe.Announced{Type: "Preempt", Action: "drain"})
	r.Observe(observe.Recovered{Kind: "digest"})
	r.called(azure.Call{Service: "blob", Operation: "PutBlob", Status: "2xx", Date: "Sun, 22 Nov 2026 17:00:00 GMT"})
	r.Observe(observe.Watching{Look: func() observe.Sight { return observe.Sight{} }})
	r.Observe(observe.QueueRead{Queue: "jobs", Messages: 1, Oldest: time.Second})
	r.Observe(observe.Committed{Kind: "digest", SincePut: 0, Ran: 0, Interruptions: 0, Exits: 0})

	families, err := r.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "spotworker_") {
			continue
		}
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		name := family.GetName()
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		if family.GetType() == dto.MetricType_HISTOGRAM {
			name += "` (histogram)"
		} else {
			name += "`"
		}
		meaning, _, _ := strings.Cut(family.GetHelp(), ". ") // its first sentence
		fmt.Fprintf(&table, "- `%s: %s\n", name, strings.TrimSuffix(meaning, "."))
	}

	shown := documentedNames(table.String())
	for _, name := range registered(r) {
		if !slices.Contains(shown, name) {
			t.Errorf("%s has no series in this test; give it one, so that it gets into the table", name)
		}
	}

	text, err := os.ReadFile(metricsDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	old, after, foundEnd := strings.Cut(rest, tableEnd)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table, between %q and %q", metricsDocument, tableBegin, tableEnd)
	}
	if *update {
		if err := os.WriteFile(metricsDocument, []byte(before+tableBegin+table.String()+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table.String() {
		t.Errorf("the table of %s is not that of the program; write it with -update. It should be:\n%s", metricsDocument, table.String())
	}
	for _, name := range documentedNames(string(text)) {
		if !slices.Contains(shown, name) {
			t.Errorf("%s names %s, and there is no such metric", metricsDocument, name)
		}
	}
}

// registered returns the names of our registered metrics, including metrics without a
// series.
func registered(r *telemetry) (names []string) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		r.Gatherer().(prometheus.Collector).Describe(descriptions)
	}()
	for d := range descriptions {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		if strings.HasPrefix(name, "spotworker_") {
			names = append(names, name)
		}
	}
	return names
}

// documentedNames returns the metrics that a text names, without the suffixes that a
// query puts behind the name of a histogram.
func documentedNames(text string) (names []string) {
	isName := func(c rune) bool { return c == '_' || 'a' <= c && c <= 'z' }
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return !isName(c) }) {
		if strings.HasPrefix(word, "spotworker_") {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				word = strings.TrimSuffix(word, suffix)
			}
			names = append(names, word)
		}
	}
	return names
}

// TestMachineTrouble: a wrong clock and a full disk are logged when they begin and end, and a kind
// whose circuit breaker is open is in the heartbeat until it closes.
func TestMachineTrouble(t *testing.T) {
	var log bytes.Buffer
	w := (&flags{}).telemetry(slog.New(slog.NewTextHandler(&log, nil)), systemdManager)
	free := int64(50)
	w.space = func() (int64, int64) { return free, 100 }
	for range 2 {
		w.Observe(observe.Broke{Kind: "b"})
		w.Observe(observe.Broke{Kind: "a"})
	}
	w.Observe(observe.Broke{Kind: "c"})
	w.Observe(observe.Recovered{Kind: "b"})
	for _, step := range []struct {
		free int64
		late time.Duration
	}{{50, 0}, {4, 0}, {4, 0}, {4, 10 * time.Minute}, {4, 10 * time.Minute}, {50, 0}} {
		free = step.free
		w.Storage = metrics.New(metrics.Config{}).Storage // which compares the clocks again
		w.Called("blob", "GetBlob", "2xx", 0, true, time.Now().Add(-step.late).UTC().Format(http.TimeFormat))
		if got := w.machineTrouble(); got.ScratchFree != free || (got.Clock-step.late).Abs() > 2*time.Second || got.Broken != "a,c" {
			t.Errorf("trouble = %+v, want %d bytes free, %s ahead, breakers of a and c", got, free, step.late)
		}
	}
	for _, line := range []string{"nearly full", "has room again", "clock of this machine is wrong", "is right again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%d lines with %q, want one:\n%s", n, line, log.String())
		}
	}
}
