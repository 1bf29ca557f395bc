package inputs

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/job"
)

// breaking is a connection on which what lies behind a place in a blob cannot be read.
type breaking struct {
	b *bench

	mu    sync.Mutex
	at    int64   // nothing from here on is read; -1 for all
	asked []int64 // where ranges began
}

func (l *breaking) Do(r *http.Request) (*http.Response, error) {
	text := strings.Join(r.Header["x-ms-range"], "") //nolint:staticcheck // the SDK writes it so
	if text, ok := strings.CutPrefix(text, "bytes="); ok {
		from, _, _ := strings.Cut(text, "-")
		offset, _ := strconv.ParseInt(from, 10, 64)
		l.mu.Lock()
		l.asked = append(l.asked, offset)
		broken := l.at >= 0 && offset >= l.at
		l.mu.Unlock()
		if broken {
			return refusal(r, http.StatusServiceUnavailable, "ServerBusy"), nil
		}
	}
	return l.b.server.Transport().Do(r)
}

// breakAt makes the connection break there from now on, and returns where ranges began.
func (l *breaking) breakAt(at int64) (asked []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, l.asked, l.at = l.asked, nil, at
	return asked
}

// fetcher is a worker's on that connection, without repeats by the SDK.
func (l *breaking) fetcher(t *testing.T, change func(*Config)) *Fetcher {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: l.b.server.ConnectionString(), Transport: l,
		Retry: &policy.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return l.b.fetcher(t, func(c *Config) {
		c.Account = account.Container
		if change != nil {
			change(c)
		}
	})
}

func (b *bench) parts() []string {
	left, _ := filepath.Glob(filepath.Join(b.folder, "workers", "*", "*-*"))
	return left
}

// TestDownloadContinues: a download that breaks continues where it broke, under the same
// ETag, and the file is right; again and again, and beside others of the job that broke with
// it. Of another version nothing is continued.
func TestDownloadContinues(t *testing.T) {
	b := setup(t)
	data := content(6*rangeLength + 5)
	b.put(t, "in/large", data)
	b.put(t, "in/small", []byte("small"))
	l := &breaking{b: b, at: 2 * rangeLength}
	f := l.fetcher(t, nil)
	in := job.Input{Container: "data", Prefix: "in/"}
	for _, next := range []int64{4 * rangeLength, 4 * rangeLength, -1} {
		if _, err := fetch(t, f, in); !job.IsUnavailable(err) {
			t.Fatalf("fetch on a connection that breaks = %v, want that storage is unavailable", err)
		}
		if left := b.parts(); len(left) != 1 || !strings.Contains(left[0], keptPrefix) {
			t.Errorf("after a try that broke there are %q, want one part", left)
		}
		asked := l.breakAt(next)
		t.Log("ranges asked for:", asked)
	}
	held := mustFetch(t, f, in)
	for _, offset := range l.breakAt(-1) {
		if offset < 4*rangeLength {
			t.Errorf("the last try read the range at %d MiB again, want those from 16 MiB on", offset>>20)
		}
	}
	if got := contents(t, held); got["large"] != string(data) || got["small"] != "small" {
		t.Errorf("the files have %d and %d bytes, want what was put", len(got["large"]), len(got["small"]))
	}
	if left := b.parts(); len(left) != 1 { // the job's folder
		t.Errorf("left behind: %q", left)
	}

	newer := []byte(strings.Repeat("n", 5*rangeLength))
	b.put(t, "in/large", newer)
	l.breakAt(3 * rangeLength)
	if _, err := fetch(t, f, in); !job.IsUnavailable(err) {
		t.Fatalf("fetch = %v", err)
	}
	newest := []byte(strings.Repeat("N", 5*rangeLength))
	b.put(t, "in/large", newest)
	l.breakAt(-1)
	if got := contents(t, mustFetch(t, f, in))["large"]; got != string(newest) {
		t.Errorf("content = %d bytes that begin with %.1q, want the newest version alone", len(got), got)
	}
}

// TestPartsMakeRoom: the kept part of a download that broke counts in the cache, and goes
// where other inputs need the room.
func TestPartsMakeRoom(t *testing.T) {
	b := setup(t)
	b.put(t, "large", content(3*rangeLength))
	l := &breaking{b: b, at: 2 * rangeLength}
	f := l.fetcher(t, func(c *Config) { c.Limit = 4 * rangeLength })
	if _, err := fetch(t, f, job.Input{Container: "data", Blob: "large"}); !job.IsUnavailable(err) {
		t.Fatalf("fetch = %v", err)
	}
	l.breakAt(-1)
	for i := range 2 {
		name := fmt.Sprintf("other/%d", i)
		b.put(t, name, content(rangeLength))
		mustFetch(t, f, job.Input{Container: "data", Blob: name})
		if kept := strings.Contains(strings.Join(b.parts(), " "), keptPrefix); !kept {
			t.Fatalf("the part is gone after %d other inputs, and there is room for both", i+1)
		}
	}
	b.put(t, "other/3", content(rangeLength))
	mustFetch(t, f, job.Input{Container: "data", Blob: "other/3"})
	if strings.Contains(strings.Join(b.parts(), " "), keptPrefix) {
		t.Error("the part is still there, and the cache has more than it may")
	}
	if _, err := fetch(t, f, job.Input{Container: "data", Blob: "large"}); !IsNoSpace(err) {
		t.Errorf("fetch beside three inputs in use = %v, want that there is no room now", err)
	}
}
