package handlers

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

func TestDigestOfSizes(t *testing.T) {
	b := setup(t)
	for _, size := range []int{0, 1, rangeSize - 1, rangeSize, rangeSize + 1, 3*rangeSize + 17} {
		data := content(size)
		b.put(t, "a/blob", data)
		b.served()
		j := digestJob("a/blob", nil)
		result, err := b.digest.Run(t.Context(), j)
		if err != nil {
			t.Fatalf("digest of %d bytes: %v", size, err)
		}
		wantDigest(t, result, data)
		if got, want := len(b.served()), (size+rangeSize-1)/rangeSize; got != want {
			t.Errorf("%d bytes were read in %d ranges, want %d", size, got, want)
		}
		if latest := job.ControlOf(j).Latest(); size > 0 && (latest == nil || latest.Fraction != 1) {
			t.Errorf("last report of %d bytes = %+v, want fraction 1", size, latest)
		}
	}
}

func TestDigestResultReadsWell(t *testing.T) {
	b := setup(t)
	b.put(t, "a&b <c>.txt", []byte("abc"))
	result, err := b.digest.Run(t.Context(), digestJob("a&b <c>.txt", nil))
	if err != nil {
		t.Fatal(err)
	}
	etag, _ := json.Marshal(b.server.Blobs("data")[0].ETag)
	want := `{"algorithm":"sha256","digest":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",` +
		`"bytes":3,"container":"data","blob":"a&b <c>.txt","etag":` + string(etag) + `}`
	if diff := cmp.Diff(want, string(result)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// TestDigestSurvivesEvictions is the proof that a job interrupted anywhere gives the
// same digest as a job without interruptions.
func TestDigestSurvivesEvictions(t *testing.T) {
	b := setup(t)
	b.put(t, "blob", content(2*rangeSize+1000))
	jobtest.Run(t, func() job.Handler { return NewDigest(b.account.Container, []string{"data"}, discard()) },
		jobtest.Case{Payload: digestJob("blob", nil).Payload, Runs: 60})
}

// TestDigestResumesAnywhere stops the handler before every range in turn. Ranges
// that were reported are never read again, and the digest is the same.
func TestDigestResumesAnywhere(t *testing.T) {
	b := setup(t)
	data := content(4*rangeSize + 99)
	b.put(t, "blob", data)
	const ranges = 5
	for n := range ranges {
		first := digestJob("blob", nil)
		_, err := b.digest.Run(b.stopAfter(t, n), first)
		var stop *job.Stop
		if !errors.As(err, &stop) || stop.Reason != job.Evicted {
			t.Fatalf("run that was stopped in range %d = %v, want the stop", n+1, err)
		}
		if n == 0 && job.ControlOf(first).Latest() != nil {
			t.Fatalf("report before the first range = %+v, want none", job.ControlOf(first).Latest())
		}
		b.server.OnCall(nil)
		b.served()

		result, err := b.digest.Run(t.Context(), digestJob("blob", job.ControlOf(first).Latest()))
		if err != nil {
			t.Fatalf("resume after %d ranges: %v", n, err)
		}
		wantDigest(t, result, data)
		var want []storage.Range
		for offset := int64(n * rangeSize); offset < int64(len(data)); offset += rangeSize {
			want = append(want, storage.Range{Offset: offset, Count: min(rangeSize, int64(len(data))-offset)})
		}
		if diff := cmp.Diff(want, b.served()); diff != "" {
			t.Errorf("ranges read after %d were reported (-want +got):\n%s", n, diff)
		}
	}
}

// changeAt replaces the blob right before each of the numbered range reads.
func (b *bench) changeAt(t *testing.T, name string, data func(n int) []byte, reads ...int) {
	t.Helper()
	count, changes := 0, 0
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != storage.OpGetBlob {
			return storage.Fault{}
		}
		count++
		for _, at := range reads {
			if at == count {
				changes++
				b.put(t, name, data(changes))
			}
		}
		return storage.Fault{}
	})
}

func TestDigestStartsOverWhenTheBlobChanges(t *testing.T) {
	b := setup(t)
	b.put(t, "blob", content(3*rangeSize))
	changed := append(content(2*rangeSize), "changed"...)
	b.changeAt(t, "blob", func(int) []byte { return changed }, 2)

	j := digestJob("blob", nil)
	result, err := b.digest.Run(t.Context(), j)
	if err != nil {
		t.Fatalf("digest of a blob that changed once: %v", err)
	}
	wantDigest(t, result, changed)
	if latest := job.ControlOf(j).Latest(); latest.Text != "8.0 of 8.0 MiB" {
		t.Errorf("last report = %q, want that of the changed blob", latest.Text)
	}
}

// A blob that changes in every run makes progress in every run: only the number
// of restarts ends its job.
func TestDigestGivesUpOnABlobThatKeepsChanging(t *testing.T) {
	b := setup(t)
	b.put(t, "blob", content(3*rangeSize))
	grow := func(n int) []byte { return content(3*rangeSize + n) }
	reads := []int{2, 4} // the first run: one range, changed, one range, changed
	var saved *job.Progress
	for run := 1; run <= maxRestarts; run++ {
		b.changeAt(t, "blob", grow, reads...)
		j := digestJob("blob", saved)
		_, err := b.digest.Run(t.Context(), j)
		if !errors.Is(err, blobref.ErrChanged) || job.IsPermanent(err) || job.ControlOf(j).Latest() == nil {
			t.Fatalf("run %d = %v with report %+v, want progress and an ordinary failure", run, err, job.ControlOf(j).Latest())
		}
		saved, reads = job.ControlOf(j).Latest(), []int{3} // from now on: stale state, one range, changed
	}
	_, err := b.digest.Run(t.Context(), digestJob("blob", saved))
	want := `blob "blob" in container data keeps changing while it is read; the job started over 5 times`
	if err == nil || err.Error() != want || !job.IsPermanent(err) {
		t.Errorf("run %d = %v, want the permanent error %q", maxRestarts+1, err, want)
	}
}
