//go:build integration

package web_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/replay/lanes"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// replayed writes the page of a replay of so many jobs.
func replayed(t *testing.T, jobs int) func(io.Writer) error {
	t.Helper()
	s := replay.Default()
	s.Fleet.VMs, s.Fleet.Rate, s.Fleet.Full = min(jobs, 20), 0.5, 0.5
	s.Work.Jobs, s.Work.Length.Duration = jobs, 30*time.Minute
	report, err := replay.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return report.Page
}

// story is a demo of so many jobs. Every third VM is killed, frozen or evicted with its jobs.
func story(jobs int) lanes.Story {
	const second = time.Second
	s := lanes.Story{
		Took: 60 * second, About: strings.Repeat("settings of the demo, ", 10),
		Figures: []lanes.Figure{{Value: "0", Name: "jobs lost", Note: "all have their result"}, {Value: "1", Name: "done twice", Bad: true},
			{Value: "3.2 MiB", Name: "redone after a notice", Note: "24.0 MiB after kill and freeze"}},
		Promises: []lanes.Promise{{Label: "No job is lost"}, {Label: "jobs lost", Measured: "0", Promised: "0", Verdict: "ok"},
			{Label: "jobs committed twice", Measured: "1", Promised: "0", Verdict: "BROKEN"}},
	}
	vms := min(jobs+1, 20)
	for n := range vms {
		s.VMs = append(s.VMs, lanes.VM{Name: fmt.Sprintf("spot_%d", n+1)})
		if fate := lanes.Fate(n % 4); fate != lanes.Spared && n+1 < vms {
			at := time.Duration(10+n) * second
			s.VMs[n].Fate, s.VMs[n].Struck, s.VMs[n].To = fate, at, at+second
		}
	}
	for n := range jobs {
		vm := n % vms
		run := lanes.Run{VM: vm, From: second, To: 9 * second, End: lanes.Committed, Saves: []time.Duration{3 * second, 5 * second}}
		job := lanes.Job{Name: fmt.Sprintf("file-%d", n+1), Done: run.To}
		if fate := s.VMs[vm].Fate; fate != lanes.Spared {
			run.To = s.VMs[vm].Struck
			run.End = map[lanes.Fate]lanes.End{lanes.Killed: lanes.Died, lanes.Frozen: lanes.Fell, lanes.Evicted: lanes.Released}[fate]
			run.Lost = second
			job.Runs, job.Done = append(job.Runs, run), 55*second
			run = lanes.Run{VM: vms - 1, From: 45 * second, To: job.Done, End: lanes.Committed}
		}
		job.Runs = append(job.Runs, run)
		s.Jobs = append(s.Jobs, job)
	}
	return s
}

// TestLanes: the pages of lab replay and lab demo with one job and with many, on a phone and on a
// desktop, light and dark: they fit the window and load nothing, axe-core finds nothing, and the
// keyboard reaches each list and its zoom.
func TestLanes(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	b := open(t)
	for _, jobs := range []int{1, 50, 1000} {
		for name, page := range map[string]struct {
			write func(io.Writer) error
			lists []string // the regions with a zoom of the same name
		}{
			"replay": {replayed(t, jobs), []string{"vms", "jobs"}},
			"demo":   {story(jobs).Page, []string{"jobs"}},
		} {
			name = fmt.Sprintf("%s-%d", name, jobs)
			file := filepath.Join(t.TempDir(), "page.html")
			to, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := page.write(to); err != nil {
				t.Fatal(err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			b.visit("file://"+file, "main")
			for _, s := range []screen{{"desktop", 1280, 900, false}, {"desktop-dark", 1280, 900, true}, {"phone", 390, 844, false},
				{"phone-dark", 390, 844, true}} {
				b.look(s)
				where := name + "-" + s.name
				if over := script[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("%s scrolls %d px to the side", where, over)
				}
				b.shoot("lanes-" + where)
				if jobs < 1000 {
					b.sound(where)
				}
			}
			if loaded := script[int](b, `performance.getEntriesByType("resource").length`); loaded > 0 {
				t.Errorf("%s loads %d resources", name, loaded)
			}
			for _, list := range page.lists {
				b.zooms(name, list)
			}
			if jobs == 1000 { // axe-core takes a minute for rows that are all alike
				script[bool](b, `document.querySelectorAll(".track:nth-child(n+20), .pic svg:nth-of-type(n+20), .pic .link:nth-of-type(n+20),`+
					` .pic circle:nth-of-type(n+20)").forEach((e) => e.remove()); true`)
				b.sound(name)
			}
			if said := b.said(); said != "" {
				t.Errorf("%s: the console has %s", name, said)
			}
		}
	}
}

// zooms reaches a list and its zoom with the keyboard alone, and widens its rows.
func (b *browser) zooms(where, list string) {
	b.t.Helper()
	script[bool](b, `document.activeElement.blur(); window.seen = []; scrollTo(0, 0); true`)
	reached, region := false, false
	for range 12 {
		b.do("press Tab", chromedp.KeyEvent(kb.Tab))
		switch at := script[string](b, `document.activeElement.id || document.activeElement.ariaLabel || ""`); {
		case at == list+"1":
			reached = true
			wide := script[float64](b, `document.activeElement.closest(".card").querySelector(".rows").offsetWidth`)
			b.do("press the right arrow", chromedp.KeyEvent(kb.ArrowRight))
			b.eventually(`document.activeElement.id === "` + list + `2"`)
			if now := script[float64](b, `document.activeElement.closest(".card").querySelector(".rows").offsetWidth`); now < 3*wide {
				b.t.Errorf("%s: the zoom of %s makes %.0f px of %.0f", where, list, now, wide)
			}
		case strings.EqualFold(at, list):
			region = true
		}
		if reached && region {
			return
		}
	}
	b.t.Errorf("%s: the keyboard reaches the zoom of %s: %t, and its region: %t", where, list, reached, region)
}
