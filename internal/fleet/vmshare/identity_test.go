package vmshare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// asked is a metadata service that answers after a while, and counts its requests.
type asked struct {
	after time.Duration
	err   error

	mu sync.Mutex
	n  int
}

func (a *asked) ask(context.Context) (preempt.Identity, error) {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
	time.Sleep(a.after)
	return preempt.Identity{Name: "vm", VMID: "id", Zone: "2"}, a.err
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// identify returns whether the service was asked while d identified the VM.
func (a *asked) identify(t *testing.T, d *Dir, endpoint string) bool {
	t.Helper()
	before := a.count()
	vm, err := d.Identity(t.Context(), endpoint, a.ask)
	if err != nil || vm != (preempt.Identity{Name: "vm", VMID: "id", Zone: "2"}) {
		t.Errorf("Identity = %v, %v, want the one of the service", vm, err)
	}
	return a.count() > before
}

// Workers that start at once send one request, and all get its answer as soon as it comes.
func TestOneRequestForTheIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		service := &asked{after: 50 * time.Millisecond}
		var running sync.WaitGroup
		begun := time.Now()
		for _, name := range []string{"0", "1", "2", "3"} {
			d := open(t, path, name)
			running.Go(func() { service.identify(t, d, "here") })
		}
		running.Wait()
		if n, took := service.count(), time.Since(begun); n != 1 || took > 60*time.Millisecond {
			t.Errorf("%d requests in %s, want one of 50ms", n, took)
		}
	})
}

// An identity is used for a minute of the same boot, for the same endpoint, and only if its
// file is whole.
func TestIdentityIsForAMoment(t *testing.T) {
	for name, row := range map[string]struct {
		change func(t *testing.T, d *Dir)
		asks   bool
	}{
		"at once":                  {func(*testing.T, *Dir) {}, false},
		"before the end":           {func(*testing.T, *Dir) { time.Sleep(identityHolds - time.Second) }, false},
		"after it":                 {func(*testing.T, *Dir) { time.Sleep(identityHolds) }, true},
		"after a reboot":           {func(_ *testing.T, d *Dir) { d.Boot = "other" }, true},
		"when the clock went back": {func(_ *testing.T, d *Dir) { d.Clock = func() time.Duration { return time.Second } }, true},
		"damaged":                  {func(t *testing.T, d *Dir) { overwrite(t, d, `{"boot":"boot","endp`) }, true},
		"without a name":           {func(t *testing.T, d *Dir) { overwrite(t, d, `{"boot":"boot","endpoint":"here","at":3600000000000}`) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			synctest.Test(t, func(t *testing.T) {
				service, d := &asked{}, open(t, path, "0")
				if !service.identify(t, d, "here") {
					t.Fatal("the first worker did not ask")
				}
				row.change(t, d)
				if got := service.identify(t, d, "here"); got != row.asks {
					t.Errorf("asked again = %t, want %t", got, row.asks)
				}
				if !service.identify(t, d, "there") {
					t.Error("the answer of one service was used for another")
				}
			})
		})
	}
}

func overwrite(t *testing.T, d *Dir, content string) {
	t.Helper()
	if err := os.WriteFile(d.file(identityFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A failed request is not an answer for the others, and a worker that holds the file for
// longer than a second does not hold up the others.
func TestIdentityWithoutTheOtherWorker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		first, second := open(t, path, "0"), open(t, path, "1")
		refused := errors.New("refused")
		if _, err := first.Identity(t.Context(), "here", (&asked{err: refused}).ask); !errors.Is(err, refused) {
			t.Errorf("Identity = %v, want the service's error", err)
		}
		slow, service := &asked{after: time.Minute}, &asked{}
		done := make(chan struct{})
		go func() { defer close(done); slow.identify(t, first, "here") }()
		synctest.Wait()
		begun := time.Now()
		if !service.identify(t, second, "here") || time.Since(begun) > lockTimeout+time.Second/10 {
			t.Errorf("asked %d times after %s, want once after a second", service.count(), time.Since(begun))
		}
		<-done
	})
}
