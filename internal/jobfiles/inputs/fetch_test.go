package inputs

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/job"
)

// TestFetch: blobs, prefixes, manifests and a container become the files that they name.
func TestFetch(t *testing.T) {
	b := setup(t)
	etag := b.put(t, "models/base.bin", []byte("base"))
	b.put(t, "frames/17/a.png", []byte("a"))
	b.put(t, "frames/17/deep/b.png", []byte("b"))
	b.put(t, "frames/17/deep", nil) // stands for a folder
	b.put(t, "frames/17/empty", nil)
	b.put(t, "frames/170/c.png", []byte("c"))
	large := content(2*rangeLength + 5)
	b.put(t, "large", large)
	b.put(t, "lists/job.jsonl", []byte(`{"container":"data","blob":"models/base.bin","to":"m/base"}`+"\n\n"+
		`{"container":"data","prefix":"frames/17/deep/"}`+"\n"))
	f := b.fetcher(t, nil)
	for name, row := range map[string]struct {
		inputs []job.Input
		want   map[string]string
	}{
		"a blob":            {[]job.Input{{Container: "data", Blob: "models/base.bin"}}, map[string]string{"base.bin": "base"}},
		"a pinned blob":     {[]job.Input{{Container: "data", Blob: "models/base.bin", ETag: etag}}, map[string]string{"base.bin": "base"}},
		"a path of its own": {[]job.Input{{Container: "data", Blob: "models/base.bin", To: "a/b"}}, map[string]string{"a/b": "base"}},
		"a prefix": {[]job.Input{{Container: "data", Prefix: "frames/17/"}}, map[string]string{"a.png": "a", "deep/b.png": "b",
			"empty": ""}},
		"a prefix in a name": {[]job.Input{{Container: "data", Prefix: "frames/17", To: "in"}},
			map[string]string{"in/17/a.png": "a", "in/17/deep/b.png": "b", "in/17/empty": "", "in/170/c.png": "c"}},
		"several": {[]job.Input{{Container: "data", Blob: "models/base.bin"}, {Container: "data", Prefix: "frames/170/"}},
			map[string]string{"base.bin": "base", "c.png": "c"}},
		"the same blob twice": {[]job.Input{{Container: "data", Blob: "frames/17/a.png", To: "1"}, {Container: "data", Blob: "frames/17/a.png",
			To: "2"}}, map[string]string{"1": "a", "2": "a"}},
		"a manifest":     {[]job.Input{{Container: "data", Manifest: "lists/job.jsonl"}}, map[string]string{"m/base": "base", "b.png": "b"}},
		"several ranges": {[]job.Input{{Container: "data", Blob: "large"}}, map[string]string{"large": string(large)}},
	} {
		t.Run(name, func(t *testing.T) {
			held := mustFetch(t, f, row.inputs...)
			if diff := cmp.Diff(row.want, contents(t, held)); diff != "" {
				t.Errorf("files (-want +got)\n%.400s", diff)
			}
			if err := held.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if held := mustFetch(t, f, job.Input{Container: "data"}); len(held.Files) != 7 {
		t.Errorf("the container has %d files, want 7: %v", len(held.Files), contents(t, held))
	}
}

// TestCalls: a file that is not in the cache costs a call for each 4 MiB, a prefix one
// for its listing, and a cached blob with an ETag none at all.
func TestCalls(t *testing.T) {
	b := setup(t)
	b.server.SetFullPages()
	etag := b.put(t, "one", content(100))
	b.put(t, "many/1", content(rangeLength))
	b.put(t, "many/2", content(rangeLength+1))
	b.put(t, "many/3", nil)
	f := b.fetcher(t, nil)
	b.counted()
	for _, row := range []struct {
		name            string
		input           job.Input
		want            map[string]int
		fetched, cached int64
	}{
		{"a prefix", job.Input{Container: "data", Prefix: "many/"}, map[string]int{"ListBlobs": 1, "GetBlob": 3}, 3, 0},
		{"the prefix again", job.Input{Container: "data", Prefix: "many/"}, map[string]int{"ListBlobs": 1}, 0, 3},
		{"a blob", job.Input{Container: "data", Blob: "one"}, map[string]int{"GetBlobProperties": 1, "GetBlob": 1}, 1, 0},
		{"the blob again", job.Input{Container: "data", Blob: "one"}, map[string]int{"GetBlobProperties": 1}, 0, 1},
		{"a pinned one", job.Input{Container: "data", Blob: "one", ETag: etag}, map[string]int{}, 0, 1},
	} {
		mustFetch(t, f, row.input)
		if got := b.counted(); !maps.Equal(got, row.want) {
			t.Errorf("%s: calls %v, want %v", row.name, got, row.want)
		}
		if fetched, cached := b.took("fetched"), b.took("cached"); fetched != row.fetched || cached != row.cached {
			t.Errorf("%s: %d files fetched and %d cached, want %d and %d", row.name, fetched, cached, row.fetched, row.cached)
		}
	}
}
