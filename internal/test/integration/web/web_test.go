//go:build integration

package web_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/job"
)

// storyID is the id of the job that has a page.
const storyID = "epoch-run-000007"

// echo logs and returns a hostile text.
func echo(ctx context.Context, j *job.Job) ([]byte, error) {
	log := job.Logger(ctx)
	log.InfoContext(ctx, "began", slog.String("job", j.ID))
	log.ErrorContext(ctx, hostile)
	log.InfoContext(ctx, strings.Repeat("long ", 2000))
	j.Report(job.Progress{Fraction: 1, Text: hostile})
	return []byte(`{"loss": 0.0312, "note": "` + hostile + `"}`), nil
}

// pages are the pages, by name.
var pages = [][2]string{{"now", "/"}, {"jobs", "/jobs"}, {"narrow", "/jobs?status=running&kind=train&sort=fraction"},
	{"job", "/job/" + storyID}, {"workers", "/workers"}, {"poison", "/poison"}, {"costs", "/costs"}, {"unknown", "/job/no-such-job"}}

// TestScreens: each page, on a phone and on desktops, light and dark, with no job and with many,
// has a heading, fits the window, and leaves nothing in the console. No hostile text runs.
func TestScreens(t *testing.T) {
	for name, jobs := range map[string]int{"none": 0, "ten": 10, "5000": 5000, "100000": 100_000} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			address := serve(t, newWorld(jobs), time.Hour)
			b.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("main")))
			base := address[:strings.Index(address, "/?")]
			b.said()
			for _, s := range screens {
				b.look(s)
				for _, p := range pages {
					b.do(chromedp.Navigate(base+p[1]), chromedp.WaitReady(chromedp.CSS("main")))
					b.eventually(`document.readyState === "complete"`)
					if over := script[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
						t.Errorf("%s on %s scrolls %d px to the side", p[0], s.name, over)
					}
					if n := script[int](b, `document.querySelectorAll("h1").length`); n != 1 {
						t.Errorf("%s has %d h1, want 1", p[0], n)
					}
					b.shoot(name + "-" + p[0] + "-" + s.name)
					if said := b.said(); said != "" && !(p[0] == "unknown" && strings.Contains(said, "404")) {
						t.Errorf("%s on %s: the console has %s", p[0], s.name, said)
					}
					if script[bool](b, `document.title.includes("owned")`) {
						t.Fatalf("%s ran a script from storage", p[0])
					}
				}
			}
		})
	}
}
