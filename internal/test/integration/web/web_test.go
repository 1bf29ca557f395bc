//go:build integration

package web_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// Jobs that have a page.
const (
	storyID   = "epoch-run-000007"
	journeyID = "epoch-run-000011" // with many deliveries
)

// echo logs and returns a hostile text.
func echo(ctx context.Context, j *job.Job) ([]byte, error) {
	log := job.Logger(ctx)
	log.InfoContext(ctx, "began", slog.String("job", j.ID))
	log.ErrorContext(ctx, hostile)
	log.InfoContext(ctx, "long", slog.String("text", strings.Repeat("long ", 2000)))
	j.Report(job.Progress{Fraction: 1, Text: hostile})
	for page := range 10 {
		if j.ID != storyID {
			break
		}
		if _, err := j.Put(ctx, job.FollowUp{Name: strconv.Itoa(page), Kind: "echo"}); err != nil {
			return nil, err
		}
	}
	return []byte(`{"loss": 0.0312, "note": "` + hostile + `"}`), nil
}

// pages are the pages, by name.
var pages = [][2]string{{"now", "/"}, {"jobs", "/jobs"}, {"narrow", "/jobs?status=running&kind=train&sort=fraction"},
	{"job", "/job/" + storyID}, {"journey", "/job/" + journeyID}, {"waiting", "/waiting"}, {"workers", "/workers"}, {"poison", "/poison"},
	{"costs", "/costs"}, {"unknown", "/job/no-such-job"}}

// TestScreens: each page, on a phone and on desktops, light and dark, with twelve jobs and, in full, with none and many,
// has a heading, fits the window, and leaves nothing in the console. No hostile text runs.
func TestScreens(t *testing.T) {
	worlds := map[string]int{"twelve": 12}
	if proof.Full() {
		maps.Copy(worlds, map[string]int{"none": 0, "5000": 5000, "100000": 100_000})
	}
	for name, jobs := range worlds {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			address := serve(t, newWorld(jobs), time.Hour)
			b.visit(address, "main")
			base := address[:strings.Index(address, "/?")]
			b.said()
			for _, s := range screens {
				b.look(s)
				for _, p := range pages {
					b.visit(base+p[1], "main")
					b.eventually(`document.readyState === "complete"`)
					if over := script[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
						t.Errorf("%s on %s scrolls %d px to the side", p[0], s.name, over)
					}
					if n := script[int](b, `document.querySelectorAll("h1").length`); n != 1 {
						t.Errorf("%s has %d h1, want 1", p[0], n)
					}
					b.shoot(name + "-" + p[0] + "-" + s.name)
					if jobs <= 12 && (s.name == "desktop" || s.name == "phone-dark") {
						b.sound(name + "-" + p[0] + "-" + s.name)
					}
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

// TestFilters uses each control of the page of jobs: the list follows, and the address has what was chosen.
func TestFilters(t *testing.T) {
	b := open(t)
	address := serve(t, newWorld(12), time.Hour)
	base := address[:strings.Index(address, "/?")]
	b.visit(address, "main")
	set := func(name, value string) string {
		return `{ const field = document.querySelector("#filters [name=` + name + `]"); field.value = "` + value + `";
			field.dispatchEvent(new Event("change", {bubbles: true})); true }`
	}
	first := func(name string) string {
		return `{ const field = document.querySelector("#filters [name=` + name + `]");
			field.selectedIndex = [...field.options].findIndex((o) => o.value);
			field.dispatchEvent(new Event("change", {bubbles: true})); true }`
	}
	for query, act := range map[string]string{
		"status=done":   `document.querySelector("#filters [name=status][value=done]").click(), true`,
		"kind=train":    set("kind", "train"),
		"id=epoch":      set("id", "epoch"),
		"worker=spot_1": set("worker", "spot_1"),
		"group=night":   set("group", "night"),
		"newer=":        first("newer"),
		"older=":        first("older"),
		"id=genome&kind=al": `document.querySelector("#filters [name=id]").value = "genome",
			document.querySelector("#filters [name=kind]").value = "al", document.querySelector("#filters button").click(), true`,
	} {
		b.visit(base+"/jobs", "#filters")
		b.eventually(`document.readyState === "complete" && typeof keyOf === "function"`)
		script[bool](b, act)
		b.eventually("location.search.includes(" + strconv.Quote(query) + `) && document.readyState === "complete"`)
		if name, value, _ := strings.Cut(query, "="); name == "id" && !strings.Contains(value, "&") {
			if n := script[int](b, `[...document.querySelectorAll("#rows tr")].filter((row) => !row.id.includes("`+value+`")).length`); n > 0 {
				t.Errorf("%s shows %d other jobs", query, n)
			}
		}
	}
	b.visit(base+"/jobs?kind=train", "#filters")
	b.press("a", "Clear")
	b.eventually(`location.pathname === "/jobs" && location.search === ""`)
	if said := b.said(); said != "" {
		t.Errorf("the console has %s", said)
	}
}

// removal merges a list without its first part, and returns the text with the focus, which was in the second.
const removal = `{ const list = (html) => { const box = document.createElement("div"); box.innerHTML = html; return box; };
	const shown = document.body.appendChild(list("<p id=first><a href=x>1</a></p><p id=second><a href=x>2</a></p><p id=third></p>"));
	shown.querySelector("#second a").focus();
	mergeChildren(shown, list("<p id=second><a href=x>new</a></p><p id=third></p>"));
	const text = document.activeElement.textContent;
	shown.remove();
	text; }`

// TestLive: an open page gets the next state without a reload, keeps the focus, and says since
// when storage does not answer. 100,000 jobs can be scrolled to their end with few rows in the
// browser.
func TestLive(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	w, b := newWorld(100_000), open(t)
	address := serve(t, w, time.Second)
	base := address[:strings.Index(address, "/?")]
	b.look(screens[0])
	b.visit(address, ".tiles")
	script[bool](b, `window.same = true; document.querySelector(".tiles a").focus();
		window.before = document.querySelector("#running").textContent; true`)
	b.eventually(`document.querySelector("#running").textContent !== window.before`)
	if !script[bool](b, `window.same && document.activeElement.matches(".tiles a")`) {
		t.Error("the update lost the page or the focus")
	}
	if text := script[string](b, removal); text != "new" {
		t.Errorf("after the removal of the part before it, the focus is on %.80q", text)
	}
	w.down.Store(true)
	b.eventually(`document.querySelector("#read").textContent.includes("Storage stopped answering")`)
	if !script[bool](b, `document.querySelectorAll("#running tbody tr").length > 3`) {
		t.Error("during an outage the last state is gone")
	}
	w.down.Store(false)
	b.eventually(`document.querySelector("#read").textContent.includes("Live")`)

	b.visit(base+"/jobs?sort=id", "#rows")
	b.eventually(`document.documentElement.scrollHeight > 3e6`)
	script[bool](b, `scrollTo(0, document.documentElement.scrollHeight); true`)
	b.eventually(`[...document.querySelectorAll("#rows tr")].some((row) => row.id === "j-genome-099999")`)
	if n := script[int](b, `document.querySelectorAll("#rows tr").length`); n > 200 {
		t.Errorf("the browser holds %d rows, want at most 200", n)
	}
	for range 12 {
		b.do("press a key", chromedp.KeyEvent("\t"))
	}
	if !script[bool](b, `document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
		t.Error("the keyboard reaches nothing that shows its focus")
	}
	if said := b.said(); said != "" {
		t.Errorf("the console has %s", said)
	}
}

// TestOutage: while storage does not answer, each page says since when and keeps its content, and a
// page without content says so. The pages ask storage no more often than before.
func TestOutage(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	for name, before := range map[string]bool{"later": false, "from-the-start": true} {
		t.Run(name, func(t *testing.T) {
			const every = 300 * time.Millisecond
			w, b := newWorld(10), open(t)
			w.down.Store(before)
			address := serve(t, w, every)
			base := address[:strings.Index(address, "/?")]
			b.visit(address, "#read")
			w.down.Store(true)
			b.eventually(`document.querySelector("#read").textContent.includes("Storage stopped answering")`)
			reads, began := w.reads.Load(), time.Now()
			for _, s := range append(screens, screen{"desktop-dark", 1440, 900, true}) {
				b.look(s)
				for _, p := range pages {
					b.visit(base+p[1], "#read")
					b.eventually(`document.readyState === "complete"`)
					text := script[string](b, `document.body.innerText`)
					if !strings.Contains(text, "Storage stopped answering") || !strings.Contains(text, "connection refused") {
						t.Errorf("%s on %s does not say what is wrong: %.400s", p[0], s.name, text)
					}
					if over := script[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
						t.Errorf("%s on %s scrolls %d px to the side", p[0], s.name, over)
					}
					b.shoot("outage-" + name + "-" + p[0] + "-" + s.name)
					if s.name == "desktop-dark" || s.name == "phone" {
						b.sound("outage-" + name + "-" + p[0] + "-" + s.name)
					}
				}
			}
			if n, most := w.reads.Load()-reads, int64(time.Since(began)/every)+2; n > most {
				t.Errorf("%d reads during an outage of %s, want at most %d", n, time.Since(began).Round(time.Millisecond), most)
			}
		})
	}
}

// TestManyTabs: more visible tabs than a browser has connections to a server load and stay live.
func TestManyTabs(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	w := newWorld(10)
	address := serve(t, w, 300*time.Millisecond)
	base := address[:strings.Index(address, "/?")]
	tabs := []*browser{open(t)}
	tabs[0].visit(address, ".tiles")
	for range 8 {
		tab := tabs[0].tab()
		tab.visit(base+"/jobs", "#rows")
		tabs = append(tabs, tab)
	}
	for i, tab := range tabs {
		script[bool](tab, `window.updates = 0; { const before = show; show = (regions) => { before(regions); updates++; }; } true`)
		tab.eventually(`updates >= 3`)
		if script[bool](tab, `document.hidden || !document.getElementById("gone").hidden`) {
			t.Errorf("tab %d is hidden, or shows that the server is gone", i)
		}
	}
}

// shifts adds up the layout shifts of a page from now on, also after the focus or a click.
const shifts = `window.shifted = 0; window.moved = []; window.updates = 0;
	new PerformanceObserver((list) => { for (const e of list.getEntries()) {
		shifted += e.value;
		for (const s of e.sources)
			moved.push(s.node?.nodeName + "." + s.node?.className + " " + Math.round(s.previousRect.top) + " to " + Math.round(s.currentRect.top));
	} }).observe({ type: "layout-shift" });
	{ const before = show; show = (regions) => { before(regions); updates++; }; } true`

// TestNoLayoutShift: while rows come and go, nothing on a page moves that was there before.
func TestNoLayoutShift(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	w, b := newWorld(5000), open(t)
	w.churn.Store(true)
	address := serve(t, w, 300*time.Millisecond)
	base := address[:strings.Index(address, "/?")]
	b.visit(address, ".tiles")
	for _, s := range screens[:2] {
		b.look(s)
		for _, path := range []string{"/", "/jobs", "/jobs?sort=id", "/workers", "/poison", "/costs"} {
			b.visit(base+path, "main")
			b.eventually(`document.readyState === "complete"`)
			script[bool](b, shifts)
			b.eventually(`updates >= 12`)
			if shifted := script[float64](b, `shifted`); shifted > 0.01 {
				t.Errorf("%s on %s: a layout shift of %.4f in 12 updates: %s", path, s.name, shifted, script[string](b, `moved.slice(0, 6).join(", ")`))
			}
		}
	}
	script[bool](b, `document.querySelector("main").style.paddingTop = "200px", true`)
	b.eventually(`shifted > 0.01`) // the test can see a shift
}

// TestPicture makes the picture of the README (make picture).
func TestPicture(t *testing.T) {
	need.Flag(t, "picture", *picture != "")
	b := open(t)
	address := serve(t, newWorld(5000), time.Second)
	b.look(screen{"picture", 1280, 800, false})
	b.visit(address, ".tiles")
	time.Sleep(15 * time.Second) // for the curves
	if err := os.WriteFile(*picture, b.picture(), 0o644); err != nil {
		t.Fatal(err)
	}
}
