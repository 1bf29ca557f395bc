package inputs

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

func verifying(c *Config) { c.Verify = true }

// poison replaces the content of a file as a program of the worker's user can: of the same
// length, and with the same times.
func poison(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Repeat("!", int(info.Size()))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, info.Mode()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// putBlocks stores a blob in blocks. The service has no MD5 of it.
func (b *bench) putBlocks(t *testing.T, name string, data []byte) {
	t.Helper()
	client := b.account.Container("data").NewBlockBlobClient(name)
	id := base64.StdEncoding.EncodeToString([]byte("block"))
	if _, err := client.StageBlock(t.Context(), id, streaming.NopCloser(bytes.NewReader(data)), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CommitBlockList(t.Context(), []string{id}, nil); err != nil {
		t.Fatal(err)
	}
}

// poisonAll changes all entries.
func (b *bench) poisonAll(t *testing.T) {
	t.Helper()
	entries := b.entries(t)
	if len(entries) == 0 {
		t.Fatal("there are no entries")
	}
	for _, name := range entries {
		poison(t, name)
	}
}

// TestChangedEntry: a job that changes entries of the cache, which it can where its program
// runs as the worker's user, changes no input of later jobs.
func TestChangedEntry(t *testing.T) {
	b := setup(t)
	b.put(t, "in/stated", []byte("stated")) // in one call, so that the service knows its MD5
	b.putBlocks(t, "in/plain", []byte("plain"))
	b.putBlocks(t, "in/long", content(2*rangeLength))
	in := job.Input{Container: "data", Prefix: "in/"}
	f := b.fetcher(t, verifying)
	want := map[string]string{"plain": "plain", "long": string(content(2 * rangeLength)), "stated": "stated"}
	check := func(what string, f *Fetcher, fetched, cached, changed int64) {
		t.Helper()
		held := mustFetch(t, f, in)
		got := contents(t, held)
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %s has %d bytes that begin with %.10q, want what was put", what, name, len(got[name]), got[name])
			}
		}
		if a, c, d := b.took(observe.InputFetched), b.took(observe.InputCached), b.took(observe.InputChanged); a != fetched || c != cached ||
			d != changed {
			t.Errorf("%s: %d fetched, %d cached, %d changed, want %d, %d, %d", what, a, c, d, fetched, cached, changed)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
	check("at first", f, 3, 0, 0)
	check("again", f, 0, 3, 0)
	b.poisonAll(t)
	check("after they were changed", f, 3, 0, 3)
	check("again after that", f, 0, 3, 0)

	other := b.fetcher(t, verifying)
	poison(t, b.entryOf(t, "stated"))
	check("another worker, which can check one of them", other, 3, 0, 1)
	check("the other worker again", other, 0, 3, 0)
	check("the first worker after that", f, 0, 3, 0)

	trusting := b.fetcher(t, nil)
	check("a worker whose programs cannot change entries", trusting, 0, 3, 0)
}

// entryOf returns the path of the entry with that content.
func (b *bench) entryOf(t *testing.T, text string) string {
	t.Helper()
	for _, name := range b.entries(t) {
		if data, err := os.ReadFile(name); err == nil && string(data) == text {
			return name
		}
	}
	t.Fatalf("no entry has the content %q", text)
	return ""
}

// TestChangedPart: the part of a download that broke is continued only if it was not changed.
func TestChangedPart(t *testing.T) {
	for name, changed := range map[string]bool{"changed": true, "as it was": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			data := content(4 * rangeLength)
			b.putBlocks(t, "large", data)
			l := &breaking{b: b, at: 2 * rangeLength}
			f := l.fetcher(t, verifying)
			in := job.Input{Container: "data", Blob: "large"}
			if _, err := fetch(t, f, in); !job.IsUnavailable(err) {
				t.Fatalf("fetch = %v", err)
			}
			parts, err := filepath.Glob(filepath.Join(b.folder, "workers", "*", keptPrefix+"*"))
			if err != nil || len(parts) != 1 {
				t.Fatalf("parts = %q, %v, want one", parts, err)
			}
			if changed {
				poison(t, parts[0])
			}
			l.breakAt(-1)
			if got := contents(t, mustFetch(t, f, in))["large"]; got != string(data) {
				t.Errorf("content begins with %.10q, want what was put", got)
			}
			first := slices.Min(l.breakAt(-1)) // several ranges are asked for at once
			if continued := first > 0; continued == changed {
				t.Errorf("the second try began at %d", first)
			}
		})
	}
}

// TestSumsAreBounded: the memory for sums does not grow with the number of inputs.
func TestSumsAreBounded(t *testing.T) {
	s := &sums{all: map[sum]sum{}}
	for i := range maxSums + 1000 {
		s.put(string(rune(i%0xD000))+strings.Repeat("x", i/0xD000), sum{})
	}
	s.put("last", sum{1})
	if got, ok := s.get("last"); !ok || got != (sum{1}) || len(s.all) > maxSums {
		t.Errorf("%d sums, the last one %v, %t; want at most %d and the last", len(s.all), got, ok, maxSums)
	}
}
