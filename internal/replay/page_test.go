package replay

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// pageOf returns the page of a scenario.
func pageOf(t *testing.T, change func(*Scenario)) (string, *Report) {
	t.Helper()
	r := replayed(t, change)
	var out bytes.Buffer
	if err := r.Page(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), r
}

// TestPageIsWhole: the page is well formed, loads nothing, and has a track for each VM and
// each job with their runs.
func TestPageIsWhole(t *testing.T) {
	for name, change := range map[string]func(*Scenario){
		"one job": func(s *Scenario) { s.Fleet.VMs, s.Work.Jobs = 1, 1 },
		"50 jobs": func(s *Scenario) { s.Fleet.Rate, s.Work.Jobs, s.Fleet.Full = 1, 50, 0.5 },
		"nothing done": func(s *Scenario) {
			s.Fleet.VMs, s.Work.Jobs, s.Work.Length.Duration, s.Fleet.Boot.Duration, s.For.Duration = 1, 3, 100*hour, hour, time.Minute
		},
		"regular VMs": func(s *Scenario) { s.Fleet.Rate, s.Fleet.Fixed, s.Policy.MoveAfter = 2, 2, 1 },
	} {
		page, r := pageOf(t, change)
		for _, loads := range []string{"http:", "https:", "//", "url(", "@import", "<script", "<link", "<img"} {
			if strings.Contains(page, loads) {
				t.Errorf("%s: the page has %q", name, loads)
			}
		}
		// But for its first line and its void elements, the page is XML.
		strict := strings.NewReplacer("<!doctype html>", "", `<meta charset="utf-8">`, "", `initial-scale=1">`, `initial-scale=1"/>`,
			`'unsafe-inline'">`, `'unsafe-inline'"/>`, ` checked>`, ` checked="checked"/>`, "<input type", "<input  type").Replace(page)
		for _, n := range []string{"1", "2", "3"} {
			for _, of := range []string{"vms", "jobs"} {
				strict = strings.ReplaceAll(strict, `id="`+of+n+`"><label`, `id="`+of+n+`"/><label`)
			}
		}
		decode := xml.NewDecoder(strings.NewReader(strict))
		tracks := 0
		for {
			token, err := decode.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok {
				for _, a := range start.Attr {
					if a.Name.Local == "class" && a.Value == "track" {
						tracks++
					}
				}
			}
		}
		if want := len(r.Picture.lanes) + r.Jobs; tracks != want {
			t.Errorf("%s: %d tracks, want %d VMs and %d jobs", name, tracks, len(r.Picture.lanes), r.Jobs)
		}
		if runs := strings.Count(page, `class="run c`); runs != 2*len(r.Picture.attempts) {
			t.Errorf("%s: %d runs drawn, want each of %d twice", name, runs, len(r.Picture.attempts))
		}
	}
}

// TestPageIsBounded: a page of many VMs and jobs has the first of them, and says so.
func TestPageIsBounded(t *testing.T) {
	page, r := pageOf(t, func(s *Scenario) {
		s.Fleet.VMs, s.Work.Jobs, s.Work.Length.Duration, s.Fleet.Rate = 300, 5000, 10*time.Minute, 1
	})
	if len(page) > 6<<20 || !strings.Contains(page, "200 more VMs") || !strings.Contains(page, "4000 more jobs") {
		t.Errorf("%d bytes for %d jobs", len(page), r.Jobs)
	}
}

// TestPageEscapes: a path of a file is a text of the page.
func TestPageEscapes(t *testing.T) {
	r := replayed(t, func(*Scenario) {})
	r.Scenario.Fleet.Lives = `<script>alert(1)</script>"`
	var out bytes.Buffer
	if err := r.Page(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "<script") || !strings.Contains(out.String(), "&lt;script&gt;") {
		t.Error("the path of the lives is not escaped")
	}
}
