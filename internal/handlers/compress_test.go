package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

func TestCompressOfSizes(t *testing.T) {
	for _, size := range []int{0, 1, testChunk - 1, testChunk, testChunk + 1, 3*testChunk + 17} {
		p := setupPacker(t)
		data := packable(size)
		p.put(t, "a/blob", data)
		j := compressJob("a/blob", nil)
		p.wantPacked(t, p.run(t, j), data)
		state, _, _ := p.server.ReadBlob("out", "a/blob.zst")
		if got, want := len(state.Blocks), max(1, (size+testChunk-1)/testChunk); got != want || len(state.Staged) != 0 {
			t.Errorf("%d bytes became %d frames, and %d are left over; want %d and none", size, got, len(state.Staged), want)
		}
		if latest := j.Latest(); latest == nil || latest.Fraction != 1 {
			t.Errorf("last report of %d bytes = %+v, want fraction 1", size, latest)
		}
	}
}

func TestCompressResultReadsWell(t *testing.T) {
	p := setupPacker(t)
	p.put(t, "a&b.txt", bytes.Repeat([]byte("abc"), 1000))
	raw, err := p.compress.Run(t.Context(), job.New(job.Spec{ID: "job-1", Payload: []byte(
		`{"container":"data","blob":"a&b.txt","target_container":"out","target_blob":"packed/a.zst","level":19}`)}, nil))
	if err != nil {
		t.Fatal(err)
	}
	state, packed, _ := p.server.ReadBlob("out", "packed/a.zst")
	etag, _ := json.Marshal(p.server.Blobs("data")[0].ETag)
	want := fmt.Sprintf(`{"algorithm":"zstd","container":"data","blob":"a&b.txt","etag":%s,"bytes":3000,"sha256":"%s",`+
		`"target_container":"out","target_blob":"packed/a.zst","target_bytes":%d,"target_sha256":"%s","ratio":%v}`,
		etag, sha(bytes.Repeat([]byte("abc"), 1000)), len(packed), sha(packed), float64(int(3000000/float64(len(packed))+0.5))/1000)
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	wantMetadata := map[string]string{
		"spotworkerjob": state.Metadata["spotworkerjob"], "sourceetag": p.server.Blobs("data")[0].ETag, "sourcebytes": "3000",
		"sourcesha256": sha(bytes.Repeat([]byte("abc"), 1000)), "sha256": sha(packed),
	}
	if diff := cmp.Diff(wantMetadata, state.Metadata); diff != "" || len(state.Metadata["spotworkerjob"]) != 32 {
		t.Errorf("metadata of the target (-want +got):\n%s", diff)
	}
}

// TestCompressSurvivesEvictions is the proof that one interrupted anywhere makes
// the same target as one that is not.
func TestCompressSurvivesEvictions(t *testing.T) {
	p := setupPacker(t)
	data := packable(2*testChunk + 1000)
	p.put(t, "blob", data)
	jobtest.Run(t, func() job.Handler { return p.handler() }, jobtest.Case{
		Payload: compressPayload("blob"),
		Reset: func() {
			if _, _, made := p.server.ReadBlob("out", "blob.zst"); made {
				p.deleteTarget(t)
			}
		},
		Check: func(raw []byte) error {
			var result CompressResult
			if err := json.Unmarshal(raw, &result); err != nil {
				return err
			}
			p.wantPacked(t, result, data)
			return nil
		},
		Runs: 150,
	})
}

// TestCompressResumes: what was staged is not read again.
func TestCompressResumes(t *testing.T) {
	p := setupPacker(t)
	data := packable(3*testChunk + 5)
	p.put(t, "blob", data)
	saved := p.stopped(t, 2)
	if saved.Text != "128.0 of 192.0 KiB" || saved.Version != 1 {
		t.Errorf("report = %q, version %d, want two ranges in version 1", saved.Text, saved.Version)
	}
	result := p.run(t, compressJob("blob", saved))
	p.wantPacked(t, result, data)
	want := []storage.Range{{Offset: 2 * testChunk, Count: testChunk}, {Offset: 3 * testChunk, Count: 5}}
	if diff := cmp.Diff(want, p.served()); diff != "" {
		t.Errorf("ranges that the resumed run read (-want +got):\n%s", diff)
	}
}

// TestCompressByTwoOwners: one that was frozen comes back and does the same work
// at the same time as its successor. Both may finish; there is one target.
func TestCompressByTwoOwners(t *testing.T) {
	p := setupPacker(t)
	data := packable(3 * testChunk)
	p.put(t, "blob", data)
	saved := p.stopped(t, 1)

	var owners sync.WaitGroup
	var results [2][]byte
	var errs [2]error
	for i := range results {
		owners.Go(func() { results[i], errs[i] = p.compress.Run(t.Context(), compressJob("blob", saved)) })
	}
	owners.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(results[0], results[1]) {
		t.Errorf("results of two owners differ:\n%s\n%s", results[0], results[1])
	}
	var result CompressResult
	if err := json.Unmarshal(results[0], &result); err != nil {
		t.Fatal(err)
	}
	p.wantPacked(t, result, data)
}

// TestCompressCommittedByTheOther: the commit comes second, to a target that this
// job has made already.
func TestCompressCommittedByTheOther(t *testing.T) {
	p := setupPacker(t)
	data := packable(testChunk + 1)
	p.put(t, "blob", data)
	var first []byte
	p.once(storage.OpPutBlockList, func() {
		var err error
		if first, err = p.compress.Run(t.Context(), compressJob("blob", nil)); err != nil {
			t.Error(err)
		}
	})
	second, err := p.compress.Run(t.Context(), compressJob("blob", nil))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the second to commit = %s, %v, want the first one's result: %s", second, err, first)
	}
}

// TestCompressAfterALostReply: the SDK repeats the commit, which finds the target.
// So does a worker that is called again after it, and it reads nothing.
func TestCompressAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setupPacker(t)
		data := packable(testChunk + 1)
		p.put(t, "blob", data)
		lost := false
		p.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlockList && !lost {
				lost = true
				return storage.Fault{DropReply: true}
			}
			return storage.Fault{}
		})
		result := p.run(t, compressJob("blob", nil))
		p.wantPacked(t, result, data)
		p.served()
		if again := p.run(t, compressJob("blob", nil)); again != result {
			t.Errorf("result of another run = %+v, want %+v", again, result)
		}
		if got := p.served(); !lost || len(got) != 0 {
			t.Errorf("ranges read by a run after the commit = %v, want none", got)
		}
	})
}

func TestCompressToATakenName(t *testing.T) {
	const want = `target blob "blob.zst" in container out exists already, and this job did not make it: remove it, or name another with target_blob`
	for name, take := range map[string]func(t *testing.T, p *packer){
		"before":            func(t *testing.T, p *packer) { p.putTarget(t) },
		"during the commit": func(t *testing.T, p *packer) { p.once(storage.OpPutBlockList, func() { p.putTarget(t) }) },
		"by another job": func(t *testing.T, p *packer) {
			if _, err := p.compress.Run(t.Context(), compressJobOf("job-2", "blob", nil)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		p := setupPacker(t)
		p.put(t, "blob", packable(100))
		take(t, p)
		_, err := p.compress.Run(t.Context(), compressJob("blob", nil))
		if err == nil || err.Error() != want || !job.IsPermanent(err) {
			t.Errorf("taken %s: compress = %v (permanent %t)\nwant %s", name, err, job.IsPermanent(err), want)
		}
		if _, held, _ := p.server.ReadBlob("out", "blob.zst"); name != "by another job" && string(held) != "somebody's" {
			t.Errorf("taken %s: the target holds %q, want what was there", name, held)
		}
	}
}

func TestCompressOfABlobThatChanges(t *testing.T) {
	p := setupPacker(t)
	p.put(t, "blob", packable(3*testChunk))
	saved := p.stopped(t, 2)
	changed := packable(2*testChunk + 9)
	changed[0] = 'z'
	p.put(t, "blob", changed)
	j := compressJob("blob", saved)
	p.wantPacked(t, p.run(t, j), changed)
	if !strings.Contains(string(j.Latest().State), `"restarts":1`) {
		t.Errorf("state after a restart = %s, want that it is counted", j.Latest().State)
	}

	p.deleteTarget(t)
	saved.State = bytes.Replace(saved.State, []byte(`"chunk":`), []byte(`"restarts":5,"chunk":`), 1)
	if _, err := p.compress.Run(t.Context(), compressJob("blob", saved)); !job.IsPermanent(err) {
		t.Errorf("compress of a job that started over 5 times in its runs before = %v, want a permanent error", err)
	}
}

func TestCompressOfABlobThatKeepsChanging(t *testing.T) {
	p := setupPacker(t)
	p.put(t, "blob", packable(2*testChunk))
	reads := 0
	p.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetBlob {
			if reads++; reads%2 == 0 {
				p.put(t, "blob", packable(2*testChunk))
			}
		}
		return storage.Fault{}
	})
	_, err := p.compress.Run(t.Context(), compressJob("blob", nil))
	const want = `the job started over 5 times, and again: read blob "blob" in container data: blob changed while it was read`
	if err == nil || err.Error() != want || !job.IsPermanent(err) {
		t.Errorf("compress = %v (permanent %t)\nwant %s", err, job.IsPermanent(err), want)
	}
}

// TestCompressAfterAWeek: the service has dropped what was staged.
func TestCompressAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := setupPacker(t)
		data := packable(2*testChunk + 9)
		p.put(t, "blob", data)
		saved := p.stopped(t, 2)
		time.Sleep(8 * 24 * time.Hour)
		p.wantPacked(t, p.run(t, compressJob("blob", saved)), data)
		if got := len(p.served()); got != 3 {
			t.Errorf("ranges read after a week = %d, want all 3", got)
		}
	})
}

// TestCompressWhenBlocksVanish: somebody made and removed a blob of the target's
// name, which drops what was staged.
func TestCompressWhenBlocksVanish(t *testing.T) {
	p := setupPacker(t)
	data := packable(testChunk + 9)
	p.put(t, "blob", data)
	p.once(storage.OpPutBlockList, func() {
		p.putTarget(t)
		p.deleteTarget(t)
	})
	j := compressJob("blob", nil)
	p.wantPacked(t, p.run(t, j), data)
	if got := len(p.served()); got != 4 {
		t.Errorf("ranges read = %d, want 2 twice", got)
	}
}
