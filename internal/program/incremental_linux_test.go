package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// linker is a program whose checkpoints are folders of hard links to its files, with a worker
// that saves them.
type linker struct {
	t         *testing.T
	store     *checkpoint.Store
	claim     *checkpoint.Claim
	collector *collector
	work      string
	said      bytes.Buffer // the worker's log

	step int
	read int64 // bytes of the last checkpoint that were read
}

const linkedFiles, linkedSize = 8, 3<<20 + 100

func newLinker(t *testing.T) *linker {
	t.Helper()
	server := storage.New(storage.Options{})
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := account.Container("jobs").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	l := &linker{t: t, store: checkpoint.NewStore(account.Container("jobs")), collector: newKeeper(t), work: t.TempDir()}
	l.collector.limits = archive.Limits{Bytes: job.MaxStream, Entries: maxEntries, Names: maxNames}
	l.collector.log = slog.New(slog.NewTextHandler(&l.said, nil))
	l.claim = l.store.Fresh(checkpoint.Delivery{ID: "a", Kind: "k", MessageID: "m"}, "worker")
	for i := range linkedFiles {
		l.replace(i)
	}
	time.Sleep(20 * time.Millisecond) // so that the time of a later write differs
	return l
}

func (l *linker) file(i int) string { return filepath.Join(l.work, fmt.Sprint(i)) }

// replace puts a new file in the place of an earlier one.
func (l *linker) replace(i int) {
	l.t.Helper()
	l.step++
	data := bytes.Repeat([]byte(fmt.Sprintf("%d-%d ", i, l.step)), linkedSize)[:linkedSize]
	if err := errors.Join(os.WriteFile(l.file(i)+".new", data, 0o600), os.Rename(l.file(i)+".new", l.file(i))); err != nil {
		l.t.Fatal(err)
	}
}

// writeInPlace changes a file and sets its time back.
func (l *linker) writeInPlace(i int) {
	l.t.Helper()
	info, err := os.Stat(l.file(i))
	if err != nil {
		l.t.Fatal(err)
	}
	file, err := os.OpenFile(l.file(i), os.O_WRONLY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.step++
	_, err = file.WriteAt([]byte(fmt.Sprintf("step %d", l.step)), 2<<20)
	if err = errors.Join(err, file.Close(), os.Chtimes(l.file(i), info.ModTime(), info.ModTime())); err != nil {
		l.t.Fatal(err)
	}
}

// countingReader counts what is read of a checkpoint.
type countingReader struct {
	*collectedReader
	read *int64
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.collectedReader.Read(p)
	*r.read += int64(n)
	return n, err
}

// save makes a checkpoint and a write with it, and demands that the record has the files.
func (l *linker) save(write func(checkpoint.Snapshot) error) {
	l.t.Helper()
	if err := os.Mkdir(l.collector.from, 0o700); err != nil {
		l.t.Fatal(err)
	}
	for i := range linkedFiles {
		if err := os.Link(l.file(i), filepath.Join(l.collector.from, fmt.Sprint(i))); err != nil {
			l.t.Fatal(err)
		}
	}
	p, err := l.collector.collect(l.t.Context())
	if err != nil || p == nil {
		l.t.Fatalf("collect = %v, %v", p, err)
	}
	l.read = 0
	err = write(checkpoint.Snapshot{Version: p.Version, Stream: func() (io.ReadCloser, error) {
		stream, err := p.Stream()
		if err != nil {
			return nil, err
		}
		return countingReader{stream.(*collectedReader), &l.read}, nil
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.expectFiles()
}

// expectFiles demands that another worker restores the program's files.
func (l *linker) expectFiles() {
	l.t.Helper()
	restored := l.t.TempDir()
	stream, err := l.stateOf()
	if err != nil {
		l.t.Fatal(err)
	}
	err = archive.Extract(stream, restored, l.collector.limits)
	_, atEnd := io.Copy(io.Discard, stream) // checks its hash
	if err := errors.Join(err, atEnd, stream.Close()); err != nil {
		l.t.Fatal(err)
	}
	for i := range linkedFiles {
		want, err := os.ReadFile(l.file(i))
		if err != nil {
			l.t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(restored, fmt.Sprint(i))); err != nil || !bytes.Equal(got, want) {
			l.t.Fatalf("file %d of step %d is not restored: %v", i, l.step, err)
		}
	}
}

// stateOf returns the recorded state.
func (l *linker) stateOf() (io.ReadCloser, error) {
	s, err := l.claim.Restore(l.t.Context())
	if err != nil {
		return nil, err
	}
	return s.Stream()
}

func (l *linker) saveRunning(s checkpoint.Snapshot) error { return l.claim.Save(l.t.Context(), s) }

func (l *linker) release(s checkpoint.Snapshot) error { return l.claim.Release(l.t.Context(), s) }

// TestReleaseReadsChangedFiles: in a stop the worker reads the files that have changed, if the
// saves before have found the others unchanged.
func TestReleaseReadsChangedFiles(t *testing.T) {
	l := newLinker(t)
	l.save(l.saveRunning)
	l.replace(7)
	if l.save(l.saveRunning); l.read < linkedFiles*linkedSize {
		t.Errorf("the second save read %d bytes, want all", l.read)
	}
	l.replace(2)
	l.save(l.release)
	if l.read < 2*linkedSize || l.read > 5*linkedSize {
		t.Errorf("the release read %d bytes of %d, want files 2 and 7, and the ends of the others", l.read, linkedFiles*linkedSize)
	}
}

// TestProgramThatSetsTimesBack: a program that writes into its files and sets their times back
// loses no change: a save compares the bytes, and from then on everything is read.
func TestProgramThatSetsTimesBack(t *testing.T) {
	proof.Only(t, "it waits for times of files")
	l := newLinker(t)
	for range 2 {
		l.save(l.saveRunning)
		l.replace(0)
	}
	l.writeInPlace(4)
	l.save(l.saveRunning)
	if said := l.said.String(); !strings.Contains(said, "checkpoints are read in full from now on") {
		t.Errorf("the log says %q, want a warning", said)
	}
	l.replace(0)
	l.save(l.saveRunning)
	l.writeInPlace(5)
	if l.save(l.release); l.read < linkedFiles*linkedSize {
		t.Errorf("the release read %d bytes of %d, want all", l.read, linkedFiles*linkedSize)
	}
	if n := strings.Count(l.said.String(), "read in full"); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
}
