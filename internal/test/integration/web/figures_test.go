//go:build integration

package web_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
	"github.com/spotworker/spotworker/internal/web"
)

// emulated makes a deployment on an emulator, which spotctl can read too.
func emulated(t *testing.T) (c *client.Client, connection string) {
	t.Helper()
	server := storage.New(storage.Options{})
	t.Cleanup(func() { _ = server.Close() })
	connection, err := server.Listen(storage.Addresses{Blob: "127.0.0.1:0", Queue: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	c, err = client.Open(client.Options{ConnectionString: connection})
	if err == nil {
		err = c.Create(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, connection
}

// stored serves the page of a deployment on an emulator with so many jobs.
func stored(t *testing.T, jobs int) (address, connection string) {
	t.Helper()
	c, connection := emulated(t)
	specs := func(yield func(client.Spec, error) bool) {
		for i := range jobs {
			if !yield(client.Spec{ID: fmt.Sprintf("job-%06d", i), Kind: fmt.Sprint("kind-", i%4), Group: "many"}, nil) {
				return
			}
		}
	}
	if _, err := c.PutMany(t.Context(), specs, client.PutOptions{NoCheck: true}); err != nil {
		t.Fatal(err)
	}
	address = listen(t, web.Config{Client: c, Every: 5 * time.Second,
		Read: func(ctx context.Context, each func(client.Job)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c, each)
		}})
	return address, connection
}

// median returns the middle value and the largest.
func median(values []float64) (middle, most float64) {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2], values[len(values)-1]
}

// timed replaces the function of the page's script that shows an update by a function that also measures
// it, with the layout.
const timed = `window.took = []; { const before = show;
	show = (regions) => { const began = performance.now();
		before(regions); document.body.offsetHeight;
		took.push(performance.now() - began); }; } true`

// painted is when the page painted its content, in milliseconds from the request.
const painted = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`

// TestFigures measures the page, and spotctl status, with 10,000 jobs on the same emulator. Times
// of a shared machine decide nothing: they are logged.
func TestFigures(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	address, connection := stored(t, 10_000)
	base := address[:strings.Index(address, "/?")]
	binary := filepath.Join(t.TempDir(), "spotctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/spotctl")
	build.Dir = repository.Root(t)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build spotctl: %v: %s", err, said)
	}
	var status []float64
	for range 5 {
		run := exec.CommandContext(t.Context(), binary, "status")
		run.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+connection)
		began := time.Now()
		if said, err := run.CombinedOutput(); err != nil || !strings.Contains(string(said), "10,000") {
			t.Fatalf("spotctl status: %v: %s", err, said)
		}
		status = append(status, float64(time.Since(began).Microseconds())/1000)
	}
	middle, _ := median(status)
	t.Logf("spotctl status: %.0f ms", middle)

	b := open(t)
	b.look(screens[0])
	b.visit(address, ".tiles")
	for _, path := range []string{"/", "/jobs"} {
		var paints []float64
		for range 7 {
			b.visit(base+path, "main")
			b.eventually(painted + " > 0")
			paints = append(paints, script[float64](b, painted))
		}
		script[bool](b, timed)
		b.eventually(`took.length >= 4`)
		paint, worst := median(paints)
		update, longest := median(script[[]float64](b, `took`))
		if paint <= 0 || update <= 0 {
			t.Errorf("%s: nothing was measured", path)
		}
		t.Logf("%-5s first paint %.0f ms (at most %.0f), %.2f of status; update %.1f ms (at most %.1f), %.3f of status", path, paint, worst,
			paint/middle, update, longest, update/middle)
	}
}
