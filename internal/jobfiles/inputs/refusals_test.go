package inputs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// TestArchivedInput: a blob in the archive tier ends the job with a remedy, whether the
// service reports it in the blob's properties, in a listing, or when it is read. A retry
// would not help: to rehydrate a blob takes hours.
func TestArchivedInput(t *testing.T) {
	for name, archive := range map[string]func(b *bench, r *http.Request, reply *http.Response) *http.Response{
		"in its properties": func(_ *bench, r *http.Request, reply *http.Response) *http.Response {
			if r.Method == http.MethodHead {
				reply.Header.Set("x-ms-access-tier", "Archive")
			}
			return reply
		},
		"while it is rehydrated": func(_ *bench, r *http.Request, reply *http.Response) *http.Response {
			if r.Method == http.MethodHead {
				reply.Header.Set("x-ms-access-tier", "Hot")
				reply.Header.Set("x-ms-archive-status", "rehydrate-pending-to-hot")
			}
			return reply
		},
		"when it is read": func(_ *bench, r *http.Request, reply *http.Response) *http.Response {
			if r.Method == http.MethodGet && r.URL.Query().Get("comp") == "" {
				return refusal(r, http.StatusConflict, "BlobArchived")
			}
			return reply
		},
		"in a listing": func(_ *bench, r *http.Request, reply *http.Response) *http.Response {
			if r.URL.Query().Get("comp") == "list" {
				page, _ := io.ReadAll(reply.Body)
				page = bytes.Replace(page, []byte("<AccessTier>Hot<"), []byte("<AccessTier>Archive<"), 1)
				reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(page)), int64(len(page))
				reply.Header.Set("Content-Length", strconv.Itoa(len(page)))
			}
			return reply
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(t, "old/a", []byte("a"))
			f := b.fetcher(t, func(c *Config) {
				c.Account = b.over(t, func(r *http.Request) (*http.Response, error) {
					reply, err := b.server.Transport().Do(r)
					if err == nil {
						reply = archive(b, r, reply)
					}
					return reply, err
				})
			})
			in := job.Input{Container: "data", Blob: "old/a"}
			if name == "in a listing" {
				in = job.Input{Container: "data", Prefix: "old/"}
			}
			_, err := fetch(t, f, in)
			if !job.IsPermanent(err) || !strings.Contains(err.Error(),
				`blob "old/a" in container data is in the archive tier: rehydrate it and replay the job`) {
				t.Errorf("fetch = %v, want a permanent error that says to rehydrate the blob", err)
			}
		})
	}
}

// transport answers calls in place of the service.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

// over returns the account over another connection.
func (b *bench) over(t testing.TB, do transport) Containers {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.server.ConnectionString(), Transport: do})
	if err != nil {
		t.Fatal(err)
	}
	return account.Container
}

func refusal(r *http.Request, status int, code string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"X-Ms-Error-Code": {code}}, Body: io.NopCloser(strings.NewReader("")),
		Request: r}
}

// page is a listing of blobs, numbered from the marker on.
func page(r *http.Request, blobs int) *http.Response {
	const most = 5000
	from, _ := strconv.Atoi(r.URL.Query().Get("marker"))
	to, next := min(from+most, blobs), ""
	if to < blobs {
		next = strconv.Itoa(to)
	}
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>`)
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `<Blob><Name>many/%06d</Name><Properties><Last-Modified>Mon, 23 Nov 2026 12:00:00 GMT</Last-Modified>`+
			`<Etag>0x1</Etag><Content-Length>0</Content-Length></Properties></Blob>`, i)
	}
	fmt.Fprintf(&b, `</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, next)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/xml"}, "X-Ms-Request-Id": {"1"},
		"Date": {"Mon, 23 Nov 2026 12:00:00 GMT"}}, Body: io.NopCloser(&b), Request: r}
}

// TestMostFiles: a job may have 100,000 input files and not one more, by a prefix or by a
// manifest, and a job with more is refused without reading all of them. A quick run lists
// more blobs alone.
func TestMostFiles(t *testing.T) {
	proof.Only(t, "it writes many files")
	proof.WithoutRace(t, "100,000 files, listed by one goroutine")
	sizes := []int{2 * MaxFiles, MaxFiles}
	for _, blobs := range sizes[:proof.Times(1, 2)] {
		b, pages := setup(t), 0
		f := b.fetcher(t, func(c *Config) {
			c.Account = b.over(t, func(r *http.Request) (*http.Response, error) { pages++; return page(r, blobs), nil })
		})
		plan, err := f.Resolve(t.Context(), message(t, job.Input{Container: "data", Prefix: "many/"}))
		wantMost(t, fmt.Sprintf("a prefix of %d blobs", blobs), blobs, plan, err)
		if pages > MaxFiles/5000+1 {
			t.Errorf("listing %d blobs took %d pages, want the last one just above the bound", blobs, pages)
		}
	}
	if !proof.Full() {
		return
	}
	b := setup(t)
	etag := b.put(t, "one", []byte("1"))
	f := b.fetcher(t, nil)
	mustFetch(t, f, job.Input{Container: "data", Blob: "one", ETag: etag}) // so that the lines need no calls
	line := fmt.Sprintf(`{"container":"data","blob":"one","etag":%q}`+"\n", etag)
	b.put(t, "list", []byte(strings.Repeat(line, MaxFiles)))
	plan, err := f.Resolve(t.Context(), message(t, job.Input{Container: "data", Manifest: "list"}, job.Input{Container: "data", Blob: "one"}))
	wantMost(t, "a manifest and a blob", MaxFiles+1, plan, err)
}

func wantMost(t *testing.T, what string, files int, plan *Plan, err error) {
	t.Helper()
	if files > MaxFiles {
		if !job.IsPermanent(err) || !strings.Contains(err.Error(), "at most 100000 are allowed: pack them into fewer blobs, or split the job") {
			t.Errorf("%s: %v, want a permanent error with the bound and what to do", what, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if n, _ := plan.Files(); n != files {
		t.Errorf("%s: %d files, want %d", what, n, files)
	}
}

// TestOtherAccount: inputs of another account's container that --input-container lists are fetched from
// there, also with an ETag and beside a blob of the same name in the account of the jobs.
// A pinned input that changed is refused.
func TestOtherAccount(t *testing.T) {
	const address = "https://shared.blob.core.windows.net"
	b, shared := setup(t), setup(t)
	b.put(t, "a", []byte("ours"))
	etag := shared.put(t, "a", []byte("theirs"))
	f := b.fetcher(t, func(c *Config) {
		c.Others = map[string]*container.Client{address + "/data": shared.account.Container("data")}
	})
	held := mustFetch(t, f,
		job.Input{Container: "data", Blob: "a", To: "own"},
		job.Input{Account: address, Container: "data", Blob: "a", To: "pinned", ETag: etag},
		job.Input{Account: address + "/", Container: "data", Prefix: "", To: "all"},
	)
	for name, want := range map[string]string{"own": "ours", "pinned": "theirs", "all/a": "theirs"} {
		if got := contents(t, held)[name]; got != want {
			t.Errorf("file %s = %q, want %q", name, got, want)
		}
	}
	if _, err := fetch(t, f, job.Input{Account: address, Container: "other", Blob: "a"}); !job.IsPermanent(err) {
		t.Errorf("fetch from another container of the account = %v, want a permanent error", err)
	}
	b.counted()
	shared.counted()
	mustFetch(t, f, job.Input{Account: address, Container: "data", Blob: "a", ETag: etag})
	if ours, theirs := b.counted(), shared.counted(); len(ours)+len(theirs) != 0 {
		t.Errorf("a pinned blob that is cached took the calls %v and %v, want none", ours, theirs)
	}
	shared.put(t, "a", []byte("changed"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = b.fetcher(t, func(c *Config) {
		c.Folder += "-new"
		c.Others = map[string]*container.Client{address + "/data": shared.account.Container("data")}
	})
	_, err := fetch(t, f, job.Input{Account: address, Container: "data", Blob: "a", ETag: etag})
	if !job.IsPermanent(err) || !strings.Contains(err.Error(), "has changed") || !strings.Contains(err.Error(), address) {
		t.Errorf("fetch of a pinned blob that changed = %v, want a permanent error that names blob and account", err)
	}
}

// TestNoRights: a missing role is a failure and no outage, and the error names the role, for
// an account of the jobs and for another one.
func TestNoRights(t *testing.T) {
	b := setup(t)
	etag := b.put(t, "a", []byte("a"))
	denied := b.over(t, func(r *http.Request) (*http.Response, error) {
		return refusal(r, http.StatusForbidden, "AuthorizationPermissionMismatch"), nil
	})
	const address = "https://shared.blob.core.windows.net"
	f := b.fetcher(t, func(c *Config) {
		c.Account, c.Others = denied, map[string]*container.Client{address + "/data": denied("data")}
	})
	for _, in := range []job.Input{
		{Container: "data", Blob: "a"}, {Container: "data", Blob: "a", ETag: etag}, {Container: "data", Prefix: "a"},
		{Container: "data", Manifest: "a"},
		{Account: address, Container: "data", Blob: "a"},
	} {
		_, err := fetch(t, f, in)
		if err == nil || job.IsPermanent(err) || job.IsUnavailable(err) || !strings.Contains(err.Error(), "Storage Blob Data Reader") ||
			!strings.Contains(err.Error(), "container data") {
			t.Errorf("fetch of %+v without the role = %v, want a failure that names role and container", in, err)
		}
	}
}
