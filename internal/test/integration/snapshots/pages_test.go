//go:build integration && linux

package snapshots

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// growing is a program that writes to one page in a hundred of its memory when a file asks for
// it, and gets more memory. The kernel places that before the memory that it has, so that all
// pages move in an image.
const growing = `
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned long x = 88172645463325252UL;
static unsigned long next(void) { x ^= x << 13; x ^= x >> 7; return x ^= x << 17; }
static unsigned long *get(long bytes) {
	unsigned long *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (new == MAP_FAILED) exit(1);
	for (long i = 0; i < bytes / 8; i++) new[i] = next();
	return new;
}
int main(int count, char **words) {
	long pages = atol(words[1]) << 8;
	unsigned long *all = get(pages << 12), sum = 0;
	puts("running"); fflush(stdout);
	while (access("change", F_OK)) usleep(20000);
	for (long i = 0; i < pages / 100; i++) all[next() % (pages << 9)] = next();
	unsigned long *more = get(5 << 12);
	fclose(fopen("changed", "w"));
	while (access("finish", F_OK)) usleep(20000);
	for (long i = 0; i < pages << 9; i++) sum = sum * 31 + all[i];
	FILE *out = fopen(getenv("SPOTWORKER_RESULT"), "w");
	fprintf(out, "%lx %lx\n", sum, more[7]);
	return fclose(out);
}
`

// TestMovedPages: of a real program that has changed 1 % of its pages and has got memory since it
// was restored, at most three times the changed bytes are sent.
func TestMovedPages(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const mib = 48
	source, binary := filepath.Join(t.TempDir(), "growing.c"), filepath.Join(t.TempDir(), "growing")
	if err := os.WriteFile(source, []byte(growing), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), need.Command(t, "cc"), "-O1", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, said)
	}
	k := program.Kind{Name: "growing", Command: []string{binary, fmt.Sprint(mib)}, Snapshot: true}
	server, c := storageWithJob(t, k)
	var sent atomic.Int64
	server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutBlock || c.Operation == storage.OpPutBlob {
			sent.Add(c.Size)
		}
		return storage.Fault{}
	})
	var results [2]string
	for i := range results {
		if i == 1 {
			if _, err := c.Put(t.Context(), client.Spec{ID: "undisturbed", Kind: k.Name, Payload: "payload"}); err != nil {
				t.Fatal(err)
			}
		}
		id := []string{"job-1", "undisturbed"}[i]
		m := newMachine(t, nil)
		stop := m.startWorker(server, k)
		m.untilRuns(false)
		if i == 0 {
			stop()
			m = newMachine(t, nil)
			stop = m.startWorker(server, k)
			m.untilRuns(true)
		}
		sent.Store(0)
		m.write("change")
		until(t, m, "pages have changed", func() bool {
			_, err := os.Stat(filepath.Join(m.work(), "changed"))
			return err == nil
		})
		if i == 0 {
			stop()
			t.Logf("of %d MiB %.2f MiB were sent", mib, float64(sent.Load())/(1<<20))
			if bound := int64(mib<<20/100*3 + 1<<20); sent.Load() > bound { // with small files
				t.Errorf("%d bytes were sent, want at most %d", sent.Load(), bound)
			}
			m = newMachine(t, nil)
			stop = m.startWorker(server, k)
			m.untilRuns(true)
		}
		m.letFinish()
		until(t, m, "the job is done", func() bool {
			j, err := c.Get(t.Context(), id)
			return err == nil && j.Status == client.StatusDone
		})
		stop()
		result, err := c.Result(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		results[i] = string(result)
	}
	if results[0] == "" || results[0] != results[1] {
		t.Errorf("result = %q, want that of an undisturbed run, %q", results[0], results[1])
	}
}
