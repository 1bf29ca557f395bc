package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

func TestSizes(t *testing.T) {
	for _, size := range []int{0, 1, testChunk - 1, testChunk, testChunk + 1, 3*testChunk + 17} {
		a := setup(t)
		data := content(size)
		a.put(t, "data", "blob", data)
		r, j := a.run(t, nil)
		a.wantTarget(t, r, data)
		if got, staged := a.blocks(t, "blob.zst"); got != max(1, (size+testChunk-1)/testChunk) || staged != 0 {
			t.Errorf("%d bytes became %d frames, and %d are left over", size, got, staged)
		}
		if latest := job.ControlOf(j).Latest(); latest == nil || latest.Fraction != 1 || latest.Version != stateVersion {
			t.Errorf("last report of %d bytes = %+v, want fraction 1", size, latest)
		}
	}
}

// TestWithWorker puts a job as a program does, and a real worker runs it.
func TestWithWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &compressor{sources: []string{"data"}, targets: []string{"out"}, chunk: testChunk}
		var a *account
		c.container = func(name string) *container.Client { return a.compressor.container(name) }
		o := clienttest.Options(t, job.Kinds{"compress": c.handler()})
		a = setupWith(t, o.ConnectionString, o.Transport)
		data := bytes.Repeat([]byte("abc"), testChunk)
		a.put(t, "data", "a&b.txt", data)

		jobs, err := client.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		p := payload{Container: "data", Blob: "a&b.txt", TargetContainer: "out", TargetBlob: "packed/a.zst", Level: 19}
		id, err := jobs.Put(t.Context(), client.Spec{Kind: "compress", Payload: p})
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Decode[compressResult](jobs.Wait(t.Context(), id))
		if err != nil {
			t.Fatal(err)
		}
		a.wantTarget(t, r, data)
		source, err := a.blob("data", "a&b.txt").GetProperties(t.Context(), nil)
		if err != nil || r.ETag != string(*source.ETag) || r.Blob != p.Blob || r.Algorithm != "zstd" || r.Ratio < 100 {
			t.Errorf("result = %+v, %v, want the source's ETag %v", r, err, source.ETag)
		}
	})
}

// TestSurvivesEvictions: a job that is interrupted anywhere makes the same target as a job
// that is not.
func TestSurvivesEvictions(t *testing.T) {
	a := setup(t)
	data := content(2*testChunk + 1000)
	a.put(t, "data", "blob", data)
	jobtest.Run(t, a.compressor.handler, jobtest.Case{
		Payload: payloadFor("blob"),
		Reset: func() {
			if _, err := a.blob("out", "blob.zst").GetProperties(t.Context(), nil); err == nil {
				a.deleteTarget(t)
			}
		},
		Check: func(raw []byte) error {
			var r compressResult
			if err := json.Unmarshal(raw, &r); err != nil {
				return err
			}
			a.wantTarget(t, r, data)
			return nil
		},
		Runs: 150,
	})
}

// TestResumes: a resumed job does not read the source of staged blocks again.
func TestResumes(t *testing.T) {
	a := setup(t)
	data := content(3*testChunk + 5)
	a.put(t, "data", "blob", data)
	saved := a.evicted(t, 2)
	if saved == nil || saved.Text != "131072 of 196613 bytes" {
		t.Fatalf("report = %+v, want two chunks", saved)
	}
	r, _ := a.run(t, saved)
	a.wantTarget(t, r, data)
	if got, want := a.served(), []string{"bytes=131072-196607", "bytes=196608-196612"}; !slices.Equal(got, want) {
		t.Errorf("ranges that the resumed run read = %q, want %q", got, want)
	}
}

// TestTwoOwners: a worker that was frozen continues at the same time as its successor.
// Both may finish; there is one target.
func TestTwoOwners(t *testing.T) {
	a := setup(t)
	data := content(3 * testChunk)
	a.put(t, "data", "blob", data)
	saved := a.evicted(t, 1)
	var owners sync.WaitGroup
	var results [2][]byte
	var errs [2]error
	for i := range results {
		owners.Go(func() {
			results[i], errs[i] = a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", saved))
		})
	}
	owners.Wait()
	if err := errors.Join(errs[:]...); err != nil || !bytes.Equal(results[0], results[1]) {
		t.Fatalf("results of two owners: %v\n%s\n%s", err, results[0], results[1])
	}
	a.wantTarget(t, decode(t, results[0]), data)
}

// TestCommitAfterAnother: the commit finds the target that another run of this job has
// made.
func TestCommitAfterAnother(t *testing.T) {
	a := setup(t)
	a.put(t, "data", "blob", content(testChunk+1))
	var first compressResult
	a.once(commit, func() { first, _ = a.run(t, nil) })
	if second, _ := a.run(t, nil); second != first {
		t.Errorf("the second to commit = %+v, want the first one's result %+v", second, first)
	}
}

// TestLostReply: the SDK repeats the commit, which finds the target. So does another run
// after it, and it reads nothing.
func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t)
		data := content(testChunk + 1)
		a.put(t, "data", "blob", data)
		commits := 0
		a.onCall(func(operation string) (*http.Response, bool) {
			if operation == commit {
				commits++
			}
			return nil, operation == commit && commits == 1
		})
		r, _ := a.run(t, nil)
		a.wantTarget(t, r, data)
		a.served()
		if again, _ := a.run(t, nil); again != r {
			t.Errorf("result of another run = %+v, want %+v", again, r)
		}
		if got := a.served(); commits != 2 || len(got) != 0 {
			t.Errorf("%d commits, and a run after them read %q; want 2 and nothing", commits, got)
		}
	})
}

func TestTakenTarget(t *testing.T) {
	const want = `target blob "blob.zst" in container out exists already, and this job did not make it: ` +
		`remove it, or name another with target_blob`
	for name, take := range map[string]func(t *testing.T, a *account){
		"before": func(t *testing.T, a *account) { a.put(t, "out", "blob.zst", []byte("another's")) },
		"during the commit": func(t *testing.T, a *account) {
			a.once(commit, func() { a.put(t, "out", "blob.zst", []byte("another's")) })
		},
		"by another job": func(t *testing.T, a *account) {
			if _, err := a.compressor.handler().Run(t.Context(), compressJob("job-2", "blob", nil)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		a := setup(t)
		data := content(100)
		a.put(t, "data", "blob", data)
		take(t, a)
		_, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", nil))
		if err == nil || err.Error() != want || !job.IsPermanent(err) {
			t.Errorf("taken %s: compress = %v (permanent %t)\nwant %s", name, err, job.IsPermanent(err), want)
		}
		properties, err := a.blob("out", "blob.zst").GetProperties(t.Context(), nil)
		if err != nil || name != "by another job" && *properties.ContentLength != int64(len("another's")) {
			t.Errorf("taken %s: the target has %v bytes, %v, want it unchanged", name, properties.ContentLength, err)
		}
	}
}

func TestSourceChanges(t *testing.T) {
	a := setup(t)
	a.put(t, "data", "blob", content(3*testChunk))
	saved := a.evicted(t, 2)
	changed := content(2*testChunk + 9)
	changed[0] = 'z'
	a.put(t, "data", "blob", changed)
	r, j := a.run(t, saved)
	a.wantTarget(t, r, changed)
	if !strings.Contains(string(job.ControlOf(j).Latest().State), `"restarts":1`) {
		t.Errorf("state after a restart = %s, want that it is counted", job.ControlOf(j).Latest().State)
	}

	a.deleteTarget(t)
	saved.State = bytes.Replace(saved.State, []byte(`"frames":`), []byte(`"restarts":5,"frames":`), 1)
	if _, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", saved)); !job.IsPermanent(err) {
		t.Errorf("compress of a job that started over 5 times in its runs before = %v, want a permanent error", err)
	}
}

func TestSourceKeepsChanging(t *testing.T) {
	a := setup(t)
	a.put(t, "data", "blob", content(2*testChunk))
	reads := 0
	a.onCall(func(operation string) (*http.Response, bool) {
		if operation == read {
			if reads++; reads%2 == 0 {
				a.put(t, "data", "blob", content(2*testChunk))
			}
		}
		return nil, false
	})
	_, err := a.compressor.handler().Run(t.Context(), compressJob("job-1", "blob", nil))
	const want = `the job started over 5 times, and again: ` +
		`read blob "blob" in container data: the blob changed while it was read`
	if err == nil || err.Error() != want || !job.IsPermanent(err) {
		t.Errorf("compress = %v (permanent %t)\nwant %s", err, job.IsPermanent(err), want)
	}
}

// TestAfterWeek: the service has dropped the staged blocks.
func TestAfterWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t)
		data := content(2*testChunk + 9)
		a.put(t, "data", "blob", data)
		saved := a.evicted(t, 2)
		time.Sleep(8 * 24 * time.Hour)
		r, _ := a.run(t, saved)
		a.wantTarget(t, r, data)
		if got := len(a.served()); got != 3 {
			t.Errorf("chunks read after a week = %d, want all 3", got)
		}
	})
}

// TestBlocksVanish: somebody made and removed a blob of the target's name, which drops
// the staged blocks.
func TestBlocksVanish(t *testing.T) {
	a := setup(t)
	data := content(testChunk + 9)
	a.put(t, "data", "blob", data)
	a.once(commit, func() {
		a.put(t, "out", "blob.zst", []byte("another's"))
		a.deleteTarget(t)
	})
	r, _ := a.run(t, nil)
	a.wantTarget(t, r, data)
	if got := len(a.served()); got != 4 {
		t.Errorf("chunks read = %d, want 2 twice", got)
	}
}
