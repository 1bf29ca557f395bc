package lanes

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

const second = time.Second

// run is a story in which job a was lost with its VM, b released after a notice, c held by a
// frozen worker, and d left alone. They continue on the fourth VM.
func run() Story {
	return Story{
		Took: 40 * second, About: "the settings",
		VMs: []VM{
			{Name: "spot_1", To: 10 * second, Fate: Killed, Struck: 10 * second},
			{Name: "spot_2", To: 12 * second, Fate: Evicted, Struck: 11 * second},
			{Name: "spot_3", Fate: Frozen, Struck: 9 * second, Thawed: 35 * second},
			{Name: "spot_4", From: 10 * second},
		},
		Jobs: []Job{
			{Name: "a", Done: 39 * second, Runs: []Run{
				{VM: 0, From: 1 * second, To: 10 * second, End: Died, Saves: []time.Duration{4 * second, 7 * second}, Lost: 3 * second},
				{VM: 3, From: 34500 * time.Millisecond, To: 39 * second, End: Committed},
			}},
			{Name: "b", Done: 20 * second, Runs: []Run{
				{VM: 1, From: 1 * second, To: 12 * second, End: Released},
				{VM: 3, From: 13 * second, To: 20 * second, End: Committed},
			}},
			{Name: "c", Done: 40 * second, Runs: []Run{
				{VM: 2, From: 1 * second, To: 9 * second, End: Fell, StaleFrom: 35 * second, StaleTo: 36 * second},
				{VM: 3, From: 33 * second, To: 40 * second, End: Committed},
			}},
			{Name: "d", Done: 8 * second, Runs: []Run{{VM: 1, From: 1 * second, To: 8 * second, End: Committed}}},
		},
		Figures: []Figure{
			{Value: "0", Name: "jobs lost", Note: "4 of 4"}, {Value: "7", Name: "done twice", Bad: true}, {Value: "3 MiB", Name: "redone"},
		},
		Promises: []Promise{{Label: "No job is lost"}, {"jobs lost", "0", "0", "ok"}, {"done twice", "7", "0", "BROKEN"}},
	}
}

// drawn returns what a method of a story writes. It must be XML but for the page's first lines.
func drawn(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	for _, loads := range []string{"https:", "url(h", "@import", "<script", "<link", "<img", "ZgotmplZ", "NaN", "Inf"} {
		if strings.Contains(out.String(), loads) {
			t.Errorf("%q is in the picture", loads)
		}
	}
	return out.String()
}

func isXML(t *testing.T, text string) {
	t.Helper()
	for decode := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := decode.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
}

func count(text, pattern string) int { return len(regexp.MustCompile(pattern).FindAllString(text, -1)) }

// TestPicture: each VM, each run, each mark, each link and each figure is there.
func TestPicture(t *testing.T) {
	svg := drawn(t, run().SVG)
	isXML(t, svg)
	for what, want := range map[string]int{
		`class="lane"`:           4,
		`<svg x=`:                6, // spot_2 and spot_4 run two jobs at once
		`class="run calm"`:       1, // d
		`class="run c0"`:         2,
		`class="run c1"`:         2,
		`class="run c2"`:         2,
		`class="lost"`:           2, // of a, and c after the freeze
		`class="saved"`:          1,
		`class="link c[012]"`:    3,
		`class="mark killed"`:    1,
		`class="mark evicted"`:   1,
		`class="mark frozen"`:    1,
		`class="ice"`:            1,
		`class="letter"[^>]*>A<`: 2,
		`>4 jobs on 4 Spot VMs: 1 killed, 1 frozen, 1 evicted<`: 1,
		`>killed without notice<`:                               1,
		`>1 job continues after 24.5 s<`:                        1, // a
		`>1 job continues after 2.0 s<`:                         1, // b
		`>1 job continues after 24.0 s<`:                        1, // c
		`class="value"[^>]*>0<`:                                 1,
		`class="value bad"[^>]*>7<`:                             1,
		`class="value"[^>]*>3 MiB<`:                             1,
		`>4 of 4<`:                                              1,
		`class="run c0" x="25.00" width="225.00"`:               1, // a's first run: 1 s to 10 s of 40 s
		`class="lost" x="175.00" width="75.00"`:                 1,
		`class="saved" d="M100.00 12v5M175.00 12v5"`:            1,
	} {
		if got := count(svg, what); got != want {
			t.Errorf("%d × %s, want %d", got, what, want)
		}
	}
}

// TestPictureFollowsTheStory: another story is another picture.
func TestPictureFollowsTheStory(t *testing.T) {
	s := run()
	s.VMs[0].Fate, s.Jobs[1].Runs, s.Figures[0].Value = Spared, s.Jobs[1].Runs[:1], "1"
	svg := drawn(t, s.SVG)
	for what, want := range map[string]int{
		`class="mark killed"`: 0, `class="link c[012]"`: 2, `class="value"[^>]*>1<`: 1, `>no job was interrupted<`: 1,
		`>4 jobs on 4 Spot VMs: 1 frozen, 1 evicted<`: 1,
	} {
		if got := count(svg, what); got != want {
			t.Errorf("%d × %s, want %d", got, what, want)
		}
	}
}

// TestPage: the page has the picture, a row for each job, and the promises.
func TestPage(t *testing.T) {
	page := drawn(t, run().Page)
	for what, want := range map[string]int{
		`class="track"`: 4, `class="pic"`: 1, `http:`: 0, `animation: veil`: 0, `>the settings<`: 1, `>BROKEN<`: 1, `class="notice"`: 1,
		`class="death"`: 1, `class="freeze"`: 1, `aria-label="a: 2 runs, done at 39.0 s"`: 1, `<th colspan="4">No job is lost`: 1,
	} {
		if got := count(page, what); got != want {
			t.Errorf("%d × %s, want %d", got, what, want)
		}
	}
	s := run()
	s.Jobs[0].Done, s.Jobs[0].Name, s.About = 0, `<script>alert(1)</script>`, `"<script>`
	if page := drawn(t, s.Page); count(page, "2 runs, not done") != 1 {
		t.Error("a job without a result has no row that says so")
	}
}

// TestPictureOfAnything: nothing, and much more than fits well, is drawn.
func TestPictureOfAnything(t *testing.T) {
	many := Story{Took: 100 * second}
	for vm := range 40 {
		many.VMs = append(many.VMs, VM{Name: fmt.Sprint("spot_", vm), To: 99 * second, Fate: Killed, Struck: 99 * second})
	}
	for n := range 1000 {
		at := time.Duration(n/320) * 10 * second
		many.Jobs = append(many.Jobs, Job{Name: fmt.Sprint("job ", n), Runs: []Run{
			{VM: n % 40, From: at, To: at + 5*second, End: Died}, {VM: (n + 1) % 40, From: at + 50*second, To: at + 60*second}}})
	}
	for name, s := range map[string]Story{"nothing": {}, "much": many} {
		svg := drawn(t, s.SVG)
		isXML(t, svg)
		if got := count(svg, `class="run `); got != 2*len(s.Jobs) {
			t.Errorf("%s: %d runs, want two for each job", name, got)
		}
		if len(svg) > 1<<20 {
			t.Errorf("%s: %d bytes", name, len(svg))
		}
		drawn(t, s.Page)
	}
}

// TestRunsOfASlotFollowOneAnother: bars of a slot do not overlap.
func TestRunsOfASlotFollowOneAnother(t *testing.T) {
	s := run()
	for vm, row := range s.place() {
		for _, a := range row {
			for _, b := range row {
				if a.slot == b.slot && a.From < b.From && max(a.To, a.StaleTo) > b.From {
					t.Errorf("VM %d: jobs %d and %d overlap in slot %d", vm, a.job, b.job, a.slot)
				}
			}
		}
	}
}
