//go:build unix

package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// TestGigabyteFolder is the promise for large checkpoints, in figures: of a
// folder of 1 GiB that has changed in ten places less than 2 % is sent, and neither taking
// and saving nor restoring it takes 64 MiB of the worker's memory.
func TestGigabyteFolder(t *testing.T) {
	proof.Only(t, "it writes 1 GiB to disk, and hashes 2")
	const files, each = 64, 16 << 20
	service := &cost.Sink{Latency: 5 * time.Millisecond}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: storage.New(storage.Options{}).ConnectionString(), Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	claim := checkpoint.NewStore(account.Container("jobs")).Fresh(checkpoint.Delivery{ID: "a", Kind: "k", MessageID: "m"}, "worker")
	k := newKeeper(t)
	k.limits = archive.Limits{Bytes: job.MaxStream, Entries: maxEntries, Names: maxNames}
	save := func() error {
		p, err := k.collect(t.Context())
		if err != nil {
			return err
		}
		return claim.Save(t.Context(), checkpoint.Snapshot{Stream: p.Stream, Version: p.Version})
	}

	work := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range files {
		writeChunks(t, filepath.Join(work, fmt.Sprintf("part-%02d", n)), n*each, each+n*1000)
	}
	linkAll(t, work, k.from)
	first := service.Measure(save)
	first.Log(t, "first save of 1 GiB")
	if first.Err != nil || first.Sent < files*each {
		t.Fatalf("first save sent %d bytes, %v, want all of it", first.Sent, first.Err)
	}

	// One file of 64 is overwritten in 10 places, a MiB apart, and a small one is new.
	changed := filepath.Join(work, "part-33")
	if err := os.Remove(changed); err != nil {
		t.Fatal(err)
	}
	writeChunks(t, changed, 33*each, each+33*1000)
	for at := int64(0); at < 10<<20; at += 1 << 20 {
		overwrite(t, changed, at)
	}
	appendTo(t, filepath.Join(work, "cursor.json"), `{"step":2}`)
	linkAll(t, work, k.from)
	second := service.Measure(save)
	second.Log(t, "second save of 1 GiB")
	if limit := int64(16 << 20); second.Err != nil || second.Sent > limit || second.Sent < 10*blocks.Page {
		t.Errorf("second save sent %d bytes, %v, want a page for each of the 10 places, and no more than %d", second.Sent, second.Err, limit)
	}

	stream, err := k.last.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	back := t.TempDir()
	restored := service.Measure(func() error { return archive.Extract(watched{stream, service}, back, k.limits) })
	restored.Log(t, "restore of 1 GiB")
	if restored.Err != nil {
		t.Fatal(restored.Err)
	}
	if got, want := (&scratch.Folder{Dir: back}).Size(1<<50, new(atomic.Bool)),
		(&scratch.Folder{Dir: work}).Size(1<<50, new(atomic.Bool)); got != want {
		t.Errorf("%d bytes came back, want %d", got, want)
	}
	for what, m := range map[string]cost.Measured{"first save": first, "second save": second, "restore": restored} {
		if limit := uint64(64 << 20); m.Heap > limit {
			t.Errorf("%s: the heap grew by %d bytes, want no more than %d", what, m.Heap, limit)
		}
	}
}

// full has TestHugeCheckpoint measure the row of docs/SECURITY.md, on a disk,
// which takes minutes.
var full = flag.Bool("figures", false, "try a checkpoint of 2,000,000 files")

// manyFiles is how many files TestManyFilesFigure makes.
var manyFiles = flag.Int("files", 200_000, "the number of files and folders of TestManyFilesFigure")

// TestManyFilesFigure measures a checkpoint of many small files beside tar, in turns: saved
// (collected and read, beside tar c) and restored (beside tar x). docs/proof.md has
// the figures.
func TestManyFilesFigure(t *testing.T) {
	need.Flag(t, "figures", *full) // it makes a million files
	const each, rounds = 999, 3
	k := newKeeper(t)
	k.limits = (&Kind{}).checkpointLimits()
	for n := range *manyFiles / (each + 1) {
		dir := filepath.Join(k.from, fmt.Sprintf("shard-%04d", n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range each {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("sample-%08d.json", n*each+i)), []byte(fmt.Sprintf(`{"n":%d}`, i)),
				0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	stored := filepath.Join(t.TempDir(), "stored")
	packed := stored + ".tar"
	var p *job.Progress
	type used struct{ wall, cpu []float64 } // seconds
	took := map[string]*used{}
	measure := func(name string, step func() error) {
		if err := exec.CommandContext(t.Context(), "sync").Run(); err != nil { // files removed and written before
			t.Fatal(err)
		}
		begun, cpu := time.Now(), cpuTime(t)
		if err := step(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		u := took[name]
		if u == nil {
			u = &used{}
			took[name] = u
		}
		u.wall, u.cpu = append(u.wall, time.Since(begun).Seconds()), append(u.cpu, (cpuTime(t)-cpu).Seconds())
		t.Logf("%s: %.2f s, %.2f s of processor time", name, u.wall[len(u.wall)-1], u.cpu[len(u.cpu)-1])
	}
	folder := filepath.Join(k.dir, "1")
	for round := range rounds {
		measure("collect", func() (err error) {
			if round > 0 {
				if err := os.Rename(folder, k.from); err != nil {
					return err
				}
				k.number, k.last = 0, nil
			}
			p, err = k.collect(t.Context())
			return err
		})
		measure("read", func() error {
			stream, err := p.Stream()
			if err != nil {
				return err
			}
			file, err := os.Create(stored)
			if err != nil {
				return err
			}
			_, err = io.CopyBuffer(struct{ io.Writer }{file}, stream, make([]byte, 4<<20))
			return errors.Join(err, file.Close(), stream.Close())
		})
		measure("tar c", func() error { return exec.CommandContext(t.Context(), "tar", "-cf", packed, "-C", folder, ".").Run() })
		to := t.TempDir()
		measure("restore", func() error {
			stream, err := os.Open(stored)
			if err != nil {
				return err
			}
			return errors.Join(archive.Extract(stream, to, k.limits), stream.Close())
		})
		tarTo := t.TempDir()
		measure("tar x", func() error { return exec.CommandContext(t.Context(), "tar", "-xf", packed, "-C", tarTo).Run() })
		for _, dir := range []string{to, tarTo} {
			if err := sandbox.RemoveTree(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	median := func(all []float64) float64 {
		all = slices.Sorted(slices.Values(all))
		return all[len(all)/2]
	}
	ratio := func(of, to []float64) float64 {
		var all []float64
		for i := range of {
			all = append(all, of[i]/to[i])
		}
		return median(all)
	}
	save := &used{}
	for i := range rounds {
		save.wall = append(save.wall, took["collect"].wall[i]+took["read"].wall[i])
		save.cpu = append(save.cpu, took["collect"].cpu[i]+took["read"].cpu[i])
	}
	took["save"] = save
	for _, pair := range [][2]string{{"save", "tar c"}, {"restore", "tar x"}} {
		ours, tars := took[pair[0]], took[pair[1]]
		t.Logf("%s beside %s: %.2f and %.2f s, ratio %.2f; processor time %.2f and %.2f s, ratio %.2f", pair[0], pair[1],
			median(ours.wall), median(tars.wall), ratio(ours.wall, tars.wall), median(ours.cpu), median(tars.cpu), ratio(ours.cpu, tars.cpu))
	}
}

// cpuTime is the processor time of this process and of the children it has waited for.
func cpuTime(t *testing.T) (all time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}

// TestHugeCheckpoint: a checkpoint folder with more files than are kept costs the
// worker the look at the first of them, and neither its refusal nor the removal of
// the folder holds up a stop that comes at the same time.
func TestHugeCheckpoint(t *testing.T) {
	proof.Only(t, "it writes gigabytes")
	limit := proof.Times(10_000, 50_000)
	b, parent, files := &rig{t: t, log: &logLines{}}, t.TempDir(), limit+limit/10
	if *full {
		limit, files = maxEntries, 2_000_000
	} else if dir, err := os.MkdirTemp("/dev/shm", "checkpoint-*"); err == nil { //nolint:usetesting // files take their time on a disk
		parent = dir
		t.Cleanup(func() { _ = sandbox.RemoveTree(dir) })
	}
	huge := filepath.Join(parent, "huge")
	if err := os.Mkdir(huge, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(huge, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.scratch, err = scratch.Open(parent, nil, b.logger()); err != nil {
		t.Fatal(err)
	}
	k := Kind{Name: "test", Command: []string{"/bin/sh", "-c", `mv "$HUGE" "$SPOTWORKER_CHECKPOINT"; exec sleep 300`},
		Environment: map[string]string{"HUGE": huge}, maxEntries: limit}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	heap, largest := cost.Heap(), watchHeap(t)
	w := b.begin(k, "", nil)
	b.until("the checkpoint", func() bool { _, err := os.Lstat(huge); return err != nil })
	stopped := time.Now()
	w.stop(job.Evicted, patience)
	w.wait(t)
	refused := time.Since(stopped)
	runtime.ReadMemStats(&after)
	begun := time.Now()
	w.Close()
	slot := time.Since(begun)
	for left := 1; left > 0; time.Sleep(time.Millisecond) { // the removal continues in the background
		jobs, err := filepath.Glob(filepath.Join(b.scratch.Parent(), "*", "job-*"))
		if left = len(jobs); err != nil {
			t.Fatal(err)
		}
	}
	removed := time.Since(begun)
	t.Logf("checkpoint of %d files: refused %s after the stop, slot free %s later, removed %s later; heap + %.1f MiB",
		files, refused.Round(time.Millisecond), slot.Round(time.Millisecond), removed.Round(time.Millisecond), float64(largest()-heap)/(1<<20))
	if w.err == nil || !job.IsPermanent(w.err) || !strings.Contains(w.err.Error(), fmt.Sprintf("more than %d files and folders", limit)) {
		t.Errorf("Run = %v, want a permanent error that names the limit", w.err)
	}
	// Entries of some 1,000 bytes each, the memory included that is free again.
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(limit*1250); got > most {
		t.Errorf("the refusal allocated %d bytes, want at most %d", got, most)
	}
	if err := b.scratch.Close(); err != nil {
		t.Error(err)
	}
}

// watchHeap samples the heap until the function that it returns is called, which
// returns the largest size.
func watchHeap(t *testing.T) (largest func() uint64) {
	var most uint64
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			most = max(most, cost.Heap())
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(stop)
	return func() uint64 {
		stop()
		watching.Wait()
		return most
	}
}

// watched is a stream during whose reading the heap is looked at.
type watched struct {
	io.Reader
	sink *cost.Sink
}

func (w watched) Read(p []byte) (int, error) {
	w.sink.Look()
	return w.Reader.Read(p)
}

var filler = bytes.Repeat([]byte("0123456789abcdef"), 64<<10/16)

// writeChunks writes a file. All pages of 64 KiB differ, also from the pages of a file
// with another number.
func writeChunks(t *testing.T, name string, number, size int) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Clone(filler)
	for at := 0; at < size && err == nil; at += len(chunk) {
		binary.BigEndian.PutUint64(chunk, uint64(number+at))
		_, err = file.Write(chunk[:min(len(chunk), size-at)])
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, name string, at int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("changed"), at+1000)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// linkAll makes a folder of links to all files of another, as a program would
// that keeps its checkpoints cheap.
func linkAll(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.Link(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
