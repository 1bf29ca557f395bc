//go:build integration

package web_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// heap is the memory of a tab's script and the nodes of its documents, after a garbage collection.
func (b *browser) heap() (kib, nodes int) {
	b.t.Helper()
	b.within("count the nodes", func(ctx context.Context) error {
		var result performance.GetMetricsResult
		_, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{})
		for range 2 {
			if err == nil {
				_, err = chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{})
			}
		}
		if err == nil {
			result, err = chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
		}
		for _, m := range result.Metrics {
			switch m.Name {
			case "JSHeapUsedSize":
				kib = int(m.Value) >> 10
			case "Nodes":
				nodes = int(m.Value)
			}
		}
		return err
	})
	return kib, nodes
}

// least returns the least memory and nodes of some collections: a collection leaves objects that the
// stack still names, such as a parsed document of an answer that comes just then.
func (b *browser) least(collections int) (kib, nodes int) {
	b.t.Helper()
	for i := range collections {
		k, n := b.heap()
		if i == 0 {
			kib, nodes = k, n
		}
		kib, nodes = min(kib, k), min(nodes, n)
		time.Sleep(100 * time.Millisecond)
	}
	return kib, nodes
}

// TestTabsKeepTheirMemory: two tabs that follow a deployment for an hour and a half of its time, an
// update each 5 s, have no more memory and no more nodes at the end than after the first hour.
func TestTabsKeepTheirMemory(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	w := newWorld(500)
	w.step = 5 * time.Second
	address := serve(t, w, 40*time.Millisecond)
	first := open(t)
	first.visit(address, ".tiles")
	tabs := []*browser{first, first.tab()}
	tabs[1].visit(address[:strings.Index(address, "/?")]+"/jobs?sort=id", "#rows")
	for _, b := range tabs {
		script[bool](b, `window.updates = 0; { const before = show; show = (regions) => { before(regions); updates++; }; } true`)
	}
	const hour = 720 // updates
	var kib, nodes [3][2]int
	for part, n := range []int{hour, hour * 5 / 4, hour * 3 / 2} {
		for _, b := range tabs {
			b.after(10*time.Minute, fmt.Sprintf("updates >= %d", n))
		}
		for _, b := range tabs { // tabs share a process: an update in between would be counted
			script[bool](b, `disconnect(), true`)
			b.eventually(`!rows?.asks`)
		}
		for i, b := range tabs {
			kib[part][i], nodes[part][i] = b.least(5)
		}
		for _, b := range tabs {
			script[bool](b, `connect(), true`)
		}
	}
	t.Logf("after 60, 75 and 90 minutes: KiB of script %v, nodes %v", kib, nodes)
	for i := range tabs {
		if kib[0][i] == 0 || nodes[0][i] == 0 {
			t.Errorf("tab %d: nothing was measured", i)
		}
		if grown := kib[2][i] - kib[0][i]; grown > 512 {
			t.Errorf("the script of tab %d has %d KiB more half an hour later", i, grown)
		}
		if grown := nodes[2][i] - nodes[0][i]; grown > 200 {
			t.Errorf("the document of tab %d has %d nodes more half an hour later", i, grown)
		}
	}
}
