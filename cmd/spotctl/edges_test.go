package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// desk is an operator's session with an emulator in this process, so that days can pass.
type desk struct {
	*session
	*world
	out, notes strings.Builder
}

// atDesk runs a test in virtual time.
func atDesk(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := emptyWorld(storage.New(storage.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Open(client.Options{ConnectionString: w.server.ConnectionString(), Transport: w.server.Transport(), Name: "me"})
		if err != nil {
			t.Fatal(err)
		}
		d := &desk{world: w}
		p := &printer{in: bufio.NewReader(strings.NewReader("")), out: &d.out, err: &d.notes}
		d.session = &session{opened: c, flags: &flags{}, printer: p}
		test(t, d)
	})
}

// done leaves jobs that are done, with their ids as results.
func (d *desk) done(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		claim, err := d.world.stores.Records.Create(t.Context(), checkpoint.Delivery{
			ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id,
		}, "worker-1")
		if err == nil {
			err = claim.Commit(t.Context(), []byte(id))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// refuseCalls refuses the calls of an operation, from the one with that number on, that
// concern a blob whose name has that end.
func (d *desk) refuseCalls(operation string, from int, end string) {
	n := 0
	d.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == operation && strings.HasSuffix(c.Blob, end) {
			if n++; n >= from {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
			}
		}
		return storage.Fault{}
	})
}

// TestCleanFails: a single job that cannot be removed makes clean fail, and the others are
// removed.
func TestCleanFails(t *testing.T) {
	for _, json := range []bool{false, true} {
		atDesk(t, func(t *testing.T, d *desk) {
			d.printer.json = json
			d.done(t, "bad", "fine")
			time.Sleep(10 * 24 * time.Hour)
			d.refuseCalls(storage.OpDeleteBlob, 1, "/bad")
			err := (&cleanCommand{Older: cleanAge(9 * day), Yes: true}).run(t.Context(), d.session)
			if err == nil || !strings.HasPrefix(err.Error(), "1 jobs could not be removed") || !strings.Contains(d.notes.String(), "bad: ") {
				t.Errorf("clean = %v\n%s%s\nwant an error about one job, and its name", err, &d.out, &d.notes)
			}
			if left := len(d.server.Blobs(d.world.stores.Names.Records)); left != 1 {
				t.Errorf("%d records are left, want one", left)
			}
			d.server.OnCall(nil)
			if err := (&cleanCommand{Older: cleanAge(9 * day), Yes: true}).run(t.Context(), d.session); err != nil {
				t.Errorf("clean again = %v", err)
			}
		})
	}
}

// brokenPipe is an output that nobody reads.
type brokenPipe struct{}

var errPipe = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

// TestResultsFail: a result that cannot be listed, read or written makes results fail.
func TestResultsFail(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(t *testing.T, d *desk, c *resultsCommand)
		want    string
	}{
		"read":  {func(_ *testing.T, d *desk, _ *resultsCommand) { d.refuseCalls(storage.OpGetBlob, 1, "/job-1") }, "result of job-1: "},
		"list":  {func(_ *testing.T, d *desk, _ *resultsCommand) { d.refuseCalls(storage.OpListBlobs, 2, "") }, "list records: "},
		"print": {func(_ *testing.T, d *desk, _ *resultsCommand) { d.printer.out = brokenPipe{} }, errPipe.Error()},
		"write": {func(t *testing.T, _ *desk, c *resultsCommand) {
			c.Dir = t.TempDir()
			if err := os.MkdirAll(filepath.Join(c.Dir, "job-1", "in the way"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "job-1"},
		"": {func(t *testing.T, _ *desk, c *resultsCommand) { c.Dir = t.TempDir() }, ""},
	} {
		atDesk(t, func(t *testing.T, d *desk) {
			d.done(t, "job-0", "job-1", "job-2")
			c := &resultsCommand{}
			row.prepare(t, d, c)
			err := c.run(t.Context(), d.session)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("results, when it cannot %s = %v, want %q", name, err, row.want)
			}
			if c.Dir == "" {
				return
			}
			left, globErr := filepath.Glob(filepath.Join(c.Dir, ".result-*"))
			if globErr != nil || len(left) > 0 || strings.Contains(d.notes.String(), "results written: 3") == (err != nil) {
				t.Errorf("results, when it cannot %s: left %q, notes %s", name, left, &d.notes)
			}
		})
	}
}
