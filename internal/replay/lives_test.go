package replay

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

const hour = time.Hour

func TestParseLives(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want lives
		err  string
	}{
		"lifetimes": {"# a comment\n60\n\n90.5\n0\n", lives{lengths: []time.Duration{time.Minute, 90500 * time.Millisecond,
			time.Second}}, ""},
		"a fleet": {"0,add,a\n1000,add,b\n2000,remove,a\n3000,add,c\n", lives{lanes: [][]life{{{end: 2 * time.Second},
			{from: 3 * time.Second, end: longest}}, {{from: time.Second, end: longest}}}, lasts: 3 * time.Second}, ""},
		"a name again": {"0,add,a\n1000,remove,a\n2000,add,a\n", lives{lanes: [][]life{{{end: time.Second}, {from: 2 * time.Second,
			end: longest}}}, lasts: 2 * time.Second}, ""},
		"out of order":     {"2000,remove,a\n0,add,a\n", lives{lanes: [][]life{{{end: 2 * time.Second}}}, lasts: 2 * time.Second}, ""},
		"nothing":          {"# a comment\n", lives{}, "no lives"},
		"both":             {"60\n0,add,a\n", lives{}, "both"},
		"a word":           {"60\nlong\n", lives{}, `line 2, "long"`},
		"not a number":     {"NaN\n", lives{}, "line 1"},
		"negative":         {"-5\n", lives{}, "line 1"},
		"too long":         {"1e300\n", lives{}, "line 1"},
		"another change":   {"0,start,a\n", lives{}, "line 1"},
		"a column missing": {"0,add\n", lives{}, "line 1"},
		"removed twice":    {"0,add,a\n1,remove,a\n2,remove,a\n", lives{}, `VM "a"`},
		"added twice":      {"0,add,a\n1,add,a\n", lives{}, `VM "a"`},
	} {
		got, err := parseLives(strings.NewReader(row.text))
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: error = %v, want %q", name, err, row.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.lengths, row.want.lengths) || !slices.EqualFunc(got.lanes, row.want.lanes, slices.Equal) ||
			got.lasts != row.want.lasts {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, row.want)
		}
	}
}

// TestRecordedLives: the recorded lives have the published figures.
func TestRecordedLives(t *testing.T) {
	google, err := readLives("gcp-2019")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(google.lengths)
	short := 0
	for _, d := range google.lengths {
		if d < 30*time.Minute {
			short++
		}
	}
	if n := len(google.lengths); n != 1442 || google.lengths[n/2].Round(time.Minute) != 112*time.Minute ||
		math.Round(100*float64(short)/float64(n)) != 29 {
		t.Errorf("%d lives, median %s, %d %% under half an hour; published: 1442, 1.86 h, 29 %%", n, google.lengths[n/2], 100*short/n)
	}
	for name, want := range map[string]int{"aws-p3": 167, "aws-g4dn": 74} {
		fleet, err := readLives(name)
		if err != nil {
			t.Fatal(err)
		}
		removals := 0
		for _, lane := range fleet.lanes {
			for i, l := range lane {
				if l.end < longest {
					removals++
				}
				if l.end <= l.from || i > 0 && l.from < lane[i-1].end {
					t.Errorf("%s: life %+v after %+v", name, l, lane[max(0, i-1)])
				}
			}
		}
		if removals != want {
			t.Errorf("%s: %d removals, want %d", name, removals, want)
		}
	}
}

// TestDrawnRates: each kind of synthetic lives has the rate of evictions and the shares of
// notices that it was asked for.
func TestDrawnRates(t *testing.T) {
	for _, kind := range []string{Poisson, Constant, Bursts} {
		f := Default().Fleet
		f.Lives, f.VMs, f.Rate, f.Full, f.Short = kind, 100, 0.5, 0.5, 0.2
		const horizon = 2000 * hour
		lanes, err := f.draw(horizon, rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		ends, full, short := 0.0, 0.0, 0.0
		for _, lane := range lanes {
			for i, l := range lane {
				if l.end >= horizon {
					continue
				}
				if i > 0 && l.from != lane[i-1].end || l.ready != l.from+f.Boot.Duration || l.seen > l.end {
					t.Fatalf("%s: life %+v after %+v", kind, l, lane[max(0, i-1)])
				}
				ends++
				switch left := l.end - l.seen; {
				case left > shortNotice:
					full++
				case left > 0:
					short++
				}
			}
		}
		rate := ends / 100 / horizon.Hours()
		// A notice of under a second is seen in half of the cases.
		if math.Abs(rate-0.5) > 0.02 || math.Abs(full/ends-0.5) > 0.02 || math.Abs(short/ends-0.19) > 0.02 {
			t.Errorf("%s: %.3f evictions an hour, %.3f and %.3f of them noticed; want 0.5, 0.5, 0.19", kind, rate, full/ends, short/ends)
		}
	}
}

// TestDrawRefuses: a recorded fleet has no more VMs and no more time than was recorded.
func TestDrawRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lives.csv")
	if err := os.WriteFile(file, []byte("60\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		lives string
		vms   int
		time  time.Duration
		want  string
	}{
		"all":              {"aws-p3", 0, 11 * hour, ""},
		"some":             {"aws-p3", 32, 11 * hour, ""},
		"too many VMs":     {"aws-p3", 33, 11 * hour, "at most 32 VMs"},
		"too long":         {"aws-p3", 0, 12 * hour, "recorded for 11h22m"},
		"a file":           {file, 3, 2 * time.Minute, ""},
		"no such file":     {file + "x", 3, hour, "neither a name"},
		"no VMs of a file": {file, 0, hour, "give a number of VMs"},
	} {
		f := Default().Fleet
		f.Lives, f.VMs = row.lives, row.vms
		_, err := f.draw(row.time, rand.New(rand.NewPCG(1, 1)))
		if (row.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

// TestObserved compares the samples with a plain sum over all lives.
func TestObserved(t *testing.T) {
	f := Default().Fleet
	f.VMs, f.Rate = 20, 0.3
	const horizon = 20 * 24 * hour // longer than the window
	lanes, err := f.draw(horizon, rand.New(rand.NewPCG(3, 3)))
	if err != nil {
		t.Fatal(err)
	}
	known := observe(lanes, horizon)
	for _, now := range []time.Duration{0, sampleEvery, 7 * hour, 6 * 24 * hour, 8 * 24 * hour, 19 * 24 * hour} {
		var want checkpoint.Losses
		for _, lane := range lanes {
			for _, l := range lane {
				switch dead := l.end+sampleLate <= now; {
				case l.ready >= l.seen || l.ready > now || dead && l.end+sampleWindow < now:
				case !dead:
					want.Watched += now - l.ready
				default:
					want.Watched += l.end - l.ready
					if l.seen < l.end {
						want.Warned++
					} else {
						want.Sudden++
					}
				}
			}
		}
		if got := known.at(now); got != want {
			t.Errorf("at %s: %+v, want %+v", now, got, want)
		}
	}
	if known.at(horizon+hour) != known[len(known)-1] {
		t.Error("after the horizon the last sample does not stand")
	}
}
