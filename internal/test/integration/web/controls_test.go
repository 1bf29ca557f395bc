//go:build integration

package web_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// controls returns the controls of a page that are alike once: of a table's rows the first, of sorted
// columns each. Each is the selector of its place in the page, and what a person would call it.
const controls = `((wanted) => {
	const seen = new Set(), found = [];
	const place = (e) => e === document.body ? "body" :
		place(e.parentElement) + " > :nth-child(" + ([...e.parentElement.children].indexOf(e) + 1) + ")";
	for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
		if (!e.checkVisibility() || e.disabled || !e.matches(wanted)) continue;
		const row = e.closest("tbody tr, li, dd");
		const name = e.tagName + " " + (e.type || "") + " " + (e.name || "") + " " + (e.value && e.type !== "text" ? e.value : "") + " " +
			(row ? row.parentElement.id + " " + [...row.querySelectorAll("a, button, input")].indexOf(e) : e.textContent.trim().slice(0, 40));
		if (seen.has(name)) continue;
		seen.add(name);
		found.push(place(e) + "|" + name.trim().replace(/\s+/g, " "));
	}
	return found;
})`

// use uses a control as a person would, and says how its effect shows: "moves" for a link to another
// page or a file, "stays" for a link to this page or a field that is only typed into, or "changes".
const use = `(async (e) => {
	if (!e) return "is gone";
	if (e.tagName === "A") {
		if (e.dataset.ask !== undefined) return e.click(), "changes";
		if (e.href === location.href || e.hash && e.pathname === location.pathname) return "stays";
		if (!e.href.startsWith(location.origin)) return "stays";
		const answer = await fetch(e.href);
		if (answer.headers.get("Content-Disposition")) return answer.ok ? "stays" : "is refused with " + answer.status;
		e.click();
		return "moves";
	}
	if (e.tagName === "SELECT") {
		const other = [...e.options].findIndex((o, i) => i !== e.selectedIndex && !o.disabled);
		if (other < 0) return "stays";
		e.selectedIndex = other;
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return e.closest("#filters") ? "changes" : "stays";
	}
	if (e.tagName === "TEXTAREA" || e.tagName === "INPUT" && !["checkbox", "radio", "submit", "button"].includes(e.type)) {
		e.value = "1";
		e.dispatchEvent(new Event("input", {bubbles: true}));
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return e.closest("#filters") ? "changes" : "stays";
	}
	e.click();
	return "changes";
})`

// TestControls uses every control of every page, alone on a fresh page: something happens, and nothing
// goes wrong in the console.
func TestControls(t *testing.T) {
	proof.Only(t, "it loads each page once for each of its controls")
	b := open(t)
	address := serve(t, newWorld(12), time.Hour)
	_, changed, changes := changing(t)
	for _, site := range []struct {
		name, address, base, wanted string
		fewest                      int
	}{
		{"read-only", address, address[:strings.Index(address, "/?")], "*", 60},
		{"with changes", changes, changed, "[data-ask], form[action='/change'] *", 6}, // this page also changes by itself
	} {
		b.visit(site.address, "main")
		used := 0
		for _, p := range pages {
			load := func() {
				b.visit(site.base+p[1], "main")
				b.eventually(`document.readyState === "complete" && typeof keyOf === "function"`)
				b.said() // of a page for a job that does not exist
			}
			load()
			for _, control := range script[[]string](b, fmt.Sprintf("%s(%q)", controls, site.wanted)) {
				at, name, _ := strings.Cut(control, "|")
				load()
				shown := "location.href + document.body?.innerHTML"
				if site.wanted != "*" {
					shown = `location.href + !!document.querySelector("dialog[open]")`
				}
				before := script[string](b, shown)
				switch effect := script[string](b, fmt.Sprintf(`%s(document.querySelector(%q))`, use, at)); {
				case effect == "moves", effect == "changes":
					if !happens(b, shown, before) {
						t.Errorf("%s, %s: nothing happens at %s", site.name, p[0], name)
					}
				case effect != "stays":
					t.Errorf("%s, %s: %s %s", site.name, p[0], name, effect)
				}
				if said := b.said(); said != "" && !strings.Contains(said, "404") {
					t.Errorf("%s, %s: %s leaves %s in the console", site.name, p[0], name, said)
				}
				used++
			}
		}
		t.Logf("%s: %d controls", site.name, used)
		if used < site.fewest {
			t.Errorf("%s: %d controls were found, want the pages' links, filters and buttons", site.name, used)
		}
	}
}

// happens waits until what the page shows differs from before, or another page is being loaded.
func happens(b *browser, shown, before string) bool {
	for range 60 {
		now := before
		b.within("look at the page", func(ctx context.Context) (err error) {
			now, err = chromedp.Run(ctx, chromedp.Evaluate[string](shown, chromedp.EvalAwaitPromise))
			if err != nil && strings.Contains(err.Error(), "navigated") {
				return nil
			}
			return err
		})
		if now != before {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
