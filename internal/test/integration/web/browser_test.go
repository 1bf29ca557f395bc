//go:build integration

package web_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/internal/test/need"
)

var (
	shots   = flag.String("shots", "", "folder for a screenshot of each screen")
	picture = flag.String("picture", "", "file for the picture of the README")
)

// browser is a Chromium with one tab, and the messages of its console.
type browser struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the browser in it

	mu       sync.Mutex
	messages []string
}

// open starts a Chromium.
func open(t *testing.T) *browser {
	t.Helper()
	need.On(t, "the suite starts Debian's Chromium", "linux")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(need.Command(t, "chromium")), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	messages := chromedp.Console(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				b.mu.Lock()
				b.messages = append(b.messages, m.String()+" "+m.URL)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-read
	})
	return b
}

// do runs actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// look sets the window and the colours.
func (b *browser) look(s screen) {
	b.t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: s.height, DeviceScaleFactor: 1, Mobile: s.width < 500,
	})
	if err == nil {
		_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// script evaluates an expression.
func script[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// eventually waits until an expression is true.
func (b *browser) eventually(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !script[bool](b, "!!("+expression+")") {
		if time.Now().After(deadline) {
			b.t.Fatalf("after 30 s it is still not true that %s", expression)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// shoot stores a screenshot if they are asked for.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// said returns the messages of the console since the last call.
func (b *browser) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.messages, "\n")
	b.messages = nil
	return all
}

// screen is a window.
type screen struct {
	name          string
	width, height int64
	dark          bool
}

var screens = []screen{
	{"desktop", 1440, 900, false}, {"phone-dark", 390, 844, true}, {"wide-dark", 2560, 1300, true}, {"phone", 390, 844, false},
}
