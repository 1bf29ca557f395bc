//go:build integration

package web_test

import (
	"context"
	"flag"
	"fmt"
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
		chromedp.DisableGPU, chromedp.UserDataDir(profile(t)), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(actionLimit))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &browser{t: t, ctx: ctx}
	b.start(cancel)
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

// profile returns a folder for the files of a browser. Child processes of a browser that was killed may
// still write there when it is removed.
func profile(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "spotworker-chromium-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.RemoveAll(folder) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return folder
}

// tab opens another tab of the browser.
func (b *browser) tab() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	other := &browser{t: b.t, ctx: ctx}
	other.start(cancel)
	return other
}

// start opens the tab, and the browser with its first tab. Both end with the context of their first
// action, so that action has no context with a limit of its own.
func (b *browser) start(cancel context.CancelFunc) {
	b.t.Helper()
	late := time.AfterFunc(actionLimit, cancel)
	defer late.Stop()
	if err := chromedp.Do(b.ctx, chromedp.Navigate("about:blank")); err != nil {
		b.t.Fatalf("open a tab: %v", err)
	}
}

// actionLimit is how long one action of the browser may take, on a busy machine.
const actionLimit = 3 * time.Minute

// within runs f with the limit of an action. An error says what was done, and where the page is.
func (b *browser) within(what string, f func(ctx context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if err == nil {
		return
	}
	took := time.Since(began).Round(time.Millisecond)
	ctx, cancel = context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	state, stateErr := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + " is " + document.readyState +
		", hidden " + document.hidden +
		", requests " + performance.getEntriesByType("resource").slice(-5).map((e) => e.name + " " + Math.round(e.duration) + " ms").join(", ")`))
	if stateErr != nil {
		state = "a page that does not answer: " + stateErr.Error()
	}
	b.t.Fatalf("%s: %v after %s; the tab has %s", what, err, took, state)
}

// do runs an action.
func (b *browser) do(what string, action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	b.within(what, func(ctx context.Context) error { return chromedp.Do(ctx, action) })
}

// visit loads an address and waits for an element.
func (b *browser) visit(address, selector string) {
	b.t.Helper()
	b.do("load "+address, chromedp.Navigate(address))
	b.do("wait for "+selector+" of "+address, chromedp.WaitReady(chromedp.CSS(selector)))
}

// look sets the window and the colours.
func (b *browser) look(s screen) {
	b.t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	b.within("set the window", func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: s.width, Height: s.height, DeviceScaleFactor: 1, Mobile: s.width < 500,
		})
		if err == nil {
			_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
					{Name: "prefers-reduced-motion", Value: "reduce"}}, // axe-core would see colours that are half changed
			})
		}
		return err
	})
}

// script evaluates an expression.
func script[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	b.within(fmt.Sprintf("%.300s", expression), func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		return err
	})
	return value
}

// eventually waits until an expression is true.
func (b *browser) eventually(expression string) {
	b.t.Helper()
	b.after(2*time.Minute, expression)
}

// after is eventually with a limit. A page that is just replaced by the next one has no value yet.
func (b *browser) after(limit time.Duration, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(limit)
	for is := false; !is; {
		b.within(fmt.Sprintf("%.300s", expression), func(ctx context.Context) (err error) {
			is, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")", chromedp.EvalAwaitPromise))
			if err != nil && strings.Contains(err.Error(), "navigated") && time.Now().Before(deadline) {
				err = nil
			}
			return err
		})
		if !is && time.Now().After(deadline) {
			b.t.Fatalf("after %s it is still not true that %s; the page has %.600s", limit, expression,
				script[string](b, `location.href + ": " + document.body?.innerText`))
		}
		if !is {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// picture returns a screenshot.
func (b *browser) picture() (png []byte) {
	b.t.Helper()
	b.within("take a picture", func(ctx context.Context) (err error) {
		png, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
		return err
	})
	return png
}

// shoot stores a screenshot if they are asked for.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), b.picture(), 0o600); err != nil {
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
