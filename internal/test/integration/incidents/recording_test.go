//go:build integration

package incidents

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// every is the time between two scrapes.
const every = 15 * time.Second

// recording has the scrapes of a Prometheus server during an incident.
type recording struct {
	onset  int                 // the scrape before which the incident begins; 0 for none
	series map[string][]string // by name and labels: a value for each scrape, empty for none
}

// add adds the answer of an instance to a scrape; "" for an instance that did not answer.
func (r *recording) add(tick int, instance, answer string) {
	for line := range strings.Lines(answer) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "spotworker_") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		name, value := line[:at], line[at+1:]
		labels := `instance="` + instance + `"`
		if before, inside, found := strings.Cut(name, "{"); found {
			name = before + "{" + labels + "," + inside
		} else {
			name += "{" + labels + "}"
		}
		for len(r.series[name]) < tick {
			r.series[name] = append(r.series[name], "")
		}
		r.series[name] = append(r.series[name], value)
	}
}

// values returns the values of a series as promtool reads them. A series that ends is
// marked as stale, as Prometheus does with a target that no longer answers.
func (r *recording) values(name string, ticks int) string {
	var b strings.Builder
	values := r.series[name]
	values = values[:min(len(values), ticks)]
	for len(values) < ticks {
		values = append(slices.Clip(values), "")
	}
	for i := 0; i < len(values); {
		same := i + 1
		for same < len(values) && values[same] == values[i] {
			same++
		}
		n := same - i
		switch {
		case values[i] != "":
			fmt.Fprintf(&b, "%s+0x%d ", values[i], n-1)
		case i == 0:
			fmt.Fprintf(&b, "_x%d ", n)
		default:
			b.WriteString("stale ")
			if n > 1 {
				fmt.Fprintf(&b, "_x%d ", n-1)
			}
		}
		i = same
	}
	return strings.TrimSpace(b.String())
}

// write writes the first scrapes of the series that keep wants into a file.
func (r *recording) write(t *testing.T, name string, ticks int, keep func(series string) bool) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "onset %d\nticks %d\n", r.onset, ticks)
	for _, series := range slices.Sorted(maps.Keys(r.series)) {
		values := r.values(series, ticks)
		cameLater := strings.HasPrefix(values, "_") && !strings.Contains(values, " ")
		if keep(series) && !cameLater {
			fmt.Fprintf(&b, "%s\t%s\n", series, values)
		}
	}
	if err := os.WriteFile(filepath.Join("testdata", name+".txt"), []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// recorded is a recording as it was written.
type recorded struct {
	onset, ticks int
	series       [][2]string // name with labels, values of promtool
}

func read(t *testing.T, name string) (r recorded) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, values, isSeries := strings.Cut(lines.Text(), "\t")
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(number)
		switch {
		case isSeries:
			r.series = append(r.series, [2]string{series, values})
		case word == "onset":
			r.onset = n
		case word == "ticks":
			r.ticks = n
		}
	}
	if err := lines.Err(); err != nil || r.ticks == 0 {
		t.Fatalf("recording %s: %v, %d scrapes", name, err, r.ticks)
	}
	return r
}
