package inputs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

func TestPlace(t *testing.T) {
	for _, row := range []struct {
		paths      string // one after another
		ignoreCase bool
		want       string // of the error about the last one
	}{
		{"a b a/b", false, "needs a folder"},
		{"a/b/c a/b", false, "needs a folder"},
		{"a/b a/b/c/d", false, "needs a folder"},
		{"a a", false, "would both be the file"},
		{"a A", false, ""},
		{"a A", true, "would both be the file"},
		{"Folder/a folder", true, "needs a folder"},
		{"a/b a/c a-b", false, ""},
	} {
		p := newPlacer()
		p.ignoreCase = row.ignoreCase
		var err error
		for i, path := range strings.Fields(row.paths) {
			if err != nil {
				t.Errorf("%s: error before the last path: %v", row.paths, err)
			}
			err = p.place(path, fmt.Sprintf("blob %d", i))
		}
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s (ignore case %t): %v, want %q", row.paths, row.ignoreCase, err, row.want)
		}
	}
	windows := newPlacer()
	windows.windows = true
	if err := windows.place("a/NUL.txt", "blob"); err == nil || !strings.Contains(err.Error(), "device on Windows") {
		t.Errorf("a device of Windows = %v, want that it is refused", err)
	}
}

// TestBadPlans: a plan that can never be fetched is refused before any download.
func TestBadPlans(t *testing.T) {
	b := setup(t)
	b.put(t, "a", []byte("a"))
	b.put(t, "folder/a", []byte("a"))
	b.put(t, "empty-list", nil)
	b.put(t, "bad-list", []byte(`{"container":"data","blob":"a"}`+"\n"+`{"container":"data","blbo":"a"}`))
	b.put(t, "nested-list", []byte(`{"container":"data","manifest":"bad-list"}`))
	b.put(t, "large-list", make([]byte, maxManifest+1))
	data := func(in job.Input) job.Input { in.Container = "data"; return in }
	for name, row := range map[string]struct {
		inputs []job.Input
		want   string
	}{
		"two of one name":      {[]job.Input{data(job.Input{Blob: "a"}), data(job.Input{Blob: "folder/a"})}, `would both be the file "a"`},
		"a file and a folder":  {[]job.Input{data(job.Input{Blob: "a", To: "x"}), data(job.Input{Blob: "a", To: "x/y"})}, "needs a folder"},
		"an empty manifest":    {[]job.Input{data(job.Input{Manifest: "empty-list"})}, "names no inputs"},
		"a bad line":           {[]job.Input{data(job.Input{Manifest: "bad-list"})}, `line 2: unknown field "blbo"`},
		"a manifest of a list": {[]job.Input{data(job.Input{Manifest: "nested-list"})}, "names another manifest"},
		"a large manifest":     {[]job.Input{data(job.Input{Manifest: "large-list"})}, "at most 16777216 are allowed"},
		"the deployment's own": {[]job.Input{{Container: "spotworker-jobs"}}, "inputs cannot come from there"},
		"an account by address": {[]job.Input{{Account: "https://127.0.0.1", Container: "data"}},
			"container https://127.0.0.1/data is not one that jobs may take inputs from"},
	} {
		b.counted()
		_, err := fetch(t, b.fetcher(t, nil), row.inputs...)
		if !job.IsPermanent(err) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want a permanent error with %q", name, err, row.want)
		}
	}
	only := b.fetcher(t, func(c *Config) { c.Allowed, c.Files = []string{"other"}, "data/files/" })
	b.put(t, "files/1", []byte("1"))
	if _, err := only.Resolve(t.Context(), []byte(`[{"container":"data","blob":"files/1"}]`)); err != nil {
		t.Errorf("a file that the job brings is refused: %v", err)
	}
	if _, err := fetch(t, only, data(job.Input{Blob: "a"})); !job.IsPermanent(err) || !strings.Contains(err.Error(), "--input-container") {
		t.Errorf("a container that is not allowed: %v", err)
	}
}

// TestTooLarge: inputs that never fit are found by their listing.
func TestTooLarge(t *testing.T) {
	b := setup(t)
	b.put(t, "a", content(3000))
	b.put(t, "b", content(3000))
	b.counted()
	for name, change := range map[string]func(*Fetcher){
		"the cache": func(f *Fetcher) { f.cache.limit = 5000 },
		"the disk":  func(f *Fetcher) { f.cache.space = func(string) (int64, int64) { return 5000, 5000 } },
		"now":       func(f *Fetcher) { f.cache.space = func(string) (int64, int64) { return 5000, 1 << 40 } },
	} {
		f := b.fetcher(t, nil)
		if _, err := f.open(); err != nil {
			t.Fatal(err)
		}
		change(f)
		_, err := fetch(t, f, job.Input{Container: "data"})
		if err == nil || job.IsPermanent(err) || IsNoSpace(err) != (name == "now") || job.IsUnavailable(err) != (name == "now") {
			t.Errorf("more than %s: %v", name, err)
		}
	}
	if got := b.counted()["GetBlob"]; got != 0 {
		t.Errorf("%d blobs were read, want none", got)
	}
}
