package workercmd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/test/guard"
	"github.com/spotworker/spotworker/job"
)

// embed starts a worker in this process. stop cancels its context and returns what
// Run returned.
func (c *cloud) embed(t *testing.T, o Options, args ...string) (stop func() error) {
	t.Helper()
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", c.connection)
	o.Arguments = append(args, "--metadata-endpoint="+guard.None, "--listen=none")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	return func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("Run has not returned")
		}
	}
}

// value returns a metric of a registry, and false if it is not there.
func value(t *testing.T, registry prometheus.Gatherer, name string) (float64, bool) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// TestTwoWorkersInOneProcess: each counts its own jobs in its own registry, and
// takes its metrics out again when it ends.
func TestTwoWorkersInOneProcess(t *testing.T) {
	c := newCloud(t, true)
	var logged [2]output
	var registries [2]*prometheus.Registry
	var stops [2]func() error
	for i, instance := range []string{"0", "1"} {
		registries[i] = prometheus.NewRegistry()
		stops[i] = c.embed(t, Options{
			Kinds: testKinds, Logger: slog.New(slog.NewTextHandler(&logged[i], nil)), Registry: registries[i], Version: "v1",
		}, "--instance="+instance, "--concurrency=1")
	}
	c.put(t, "a", "polite")
	c.put(t, "b", "polite")
	for _, id := range []string{"a", "b"} {
		c.untilRecord(t, id, "running", func(r checkpoint.Record) bool { return r.Status == checkpoint.Running })
	}
	for i, registry := range registries {
		if n, _ := value(t, registry, "spotworker_deliveries_total"); n != 1 {
			t.Errorf("deliveries of worker %d = %v, want 1", i, n)
		}
		if _, found := value(t, registry, "go_goroutines"); found {
			t.Error("the program's registry got metrics of Go, which it has of its own")
		}
	}
	for i, stop := range stops {
		if err := stop(); err != nil {
			t.Errorf("Run of worker %d = %v, want nil after its context was cancelled", i, err)
		}
		if !logged[i].has("state changed") {
			t.Errorf("the logger of worker %d got %q, want its states", i, &logged[i])
		}
		if _, found := value(t, registries[i], "spotworker_deliveries_total"); found {
			t.Errorf("metrics of worker %d are still registered after its end", i)
		}
	}
}

// TestRunAgain: a program may run one worker after another in the folder that the workers of the
// VM share, also after bad configuration.
func TestRunAgain(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", newCloud(t, true).connection)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	folder := "--runtime-dir=" + filepath.Join(t.TempDir(), "run")
	for _, kinds := range []job.Kinds{nil, testKinds, testKinds} {
		o := Options{Kinds: kinds, Logger: slog.New(slog.DiscardHandler), Arguments: []string{folder, "--metadata-endpoint=" + guard.None,
			"--listen=none"}}
		err := Run(ctx, o)
		if kinds == nil && (err == nil || strings.Contains(err.Error(), "instance")) || kinds != nil && err != nil {
			t.Errorf("Run with %d kinds after another Run = %v, want an error only without a kind", len(kinds), err)
		}
	}
}

// TestRunReturnsErrors: a program that runs a worker outlives its bad configuration.
func TestRunReturnsErrors(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", newCloud(t, false).connection)
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"a flag that does not exist": {Options{Kinds: testKinds, Arguments: []string{"--no-such-flag"}}, "unknown flag --no-such-flag"},
		"a bad value":                {Options{Kinds: testKinds, Arguments: []string{"--checkpoint-interval=never"}}, "--checkpoint-interval is"},
		"no kind of job":             {Options{}, "there is no kind of job to do"},
		"a kind that is no name":     {Options{Kinds: job.Kinds{"../x": testKinds["polite"]}}, "../x"},
	} {
		c.options.Logger = log
		c.options.Arguments = append(c.options.Arguments, "--metadata-endpoint="+guard.None, "--listen=none")
		err := Run(t.Context(), c.options)
		if _, ok := errors.AsType[*cli.ConfigError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Run = %v, want an error of configuration with %q", name, err, c.want)
		}
	}
}

// TestRunTwiceWithOneRegistry: two workers would overwrite each other's metrics.
func TestRunTwiceWithOneRegistry(t *testing.T) {
	c := newCloud(t, true)
	registry := prometheus.NewRegistry()
	o := Options{Kinds: testKinds, Logger: slog.New(slog.DiscardHandler), Registry: registry}
	stop := c.embed(t, o, "--instance=0")
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, found := value(t, registry, "spotworker_deliveries_total"); found || time.Now().After(late) {
			break
		}
	}
	o.Arguments = []string{"--instance=1", "--metadata-endpoint=" + guard.None, "--listen=none"}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "register the worker's metrics") {
		t.Errorf("Run with the registry of another worker = %v, want an error", err)
	}
	if err := stop(); err != nil {
		t.Errorf("Run of the first worker = %v, want nil", err)
	}
}

// TestVersion: the program's own comes first, and there is always one.
func TestVersion(t *testing.T) {
	for _, version := range []string{"v1.2.3", ""} {
		var out bytes.Buffer
		if err := run(t.Context(), Options{Arguments: []string{"--version"}, Version: version}, &out, &out); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(out.String())
		if len(words) != 2 || version != "" && !slices.Contains(words, version) {
			t.Errorf("--version with %q prints %q", version, &out)
		}
	}
}
