//go:build integration

package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// axe returns the script of axe-core (make integration-tools). Without it, ok is false: with
// CI=true that fails the test.
func axe(t testing.TB) (text string, ok bool) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository.Root(t), ".tools/axe/node_modules/axe-core/axe.min.js"))
	if err != nil && need.CI() {
		t.Fatal(err)
	}
	return string(content), err == nil
}

// findings runs axe-core in the page, with the rules of WCAG A and AA.
const findings = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], iframes: false}).then((r) =>
	r.violations.map((v) => v.id + " (" + v.help + "): " + v.nodes.slice(0, 3).map((n) => n.target + " " +
		n.any.concat(n.all, n.none).map((c) => c.message).slice(0, 1)).join("; ")).join("\n"))`

// sound fails the test if axe-core finds something in the page.
func (b *browser) sound(where string) {
	b.t.Helper()
	text, ok := axe(b.t)
	if !ok {
		return // TestAxeFinds names it
	}
	script[bool](b, text+"\n;true")
	if found := script[string](b, findings); found != "" {
		b.t.Errorf("%s: axe-core finds\n%s", where, strings.TrimSpace(found))
	}
}

// TestAxeFinds: axe-core is there, runs in the page, and finds an error.
func TestAxeFinds(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	text, ok := axe(t)
	if !ok {
		need.Missing(t, "axe-core in .tools/axe")
	}
	b := open(t)
	script[bool](b, text+"\n;document.body.innerHTML = `<main><img src=x></main>`; true")
	if found := script[string](b, findings); !strings.Contains(found, "image-alt") {
		t.Errorf("axe-core finds %q in an image without a text", found)
	}
}
