package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A line that is read is written when sync returns, as without an asyncWriter.
func TestAsyncWriterWritesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := newAsyncWriter(&out, func(int) { t.Error("lines were dropped") })
		began := time.Now()
		for i := range 3 {
			fmt.Fprintf(o, "line %d\n", i)
			o.sync()
			if !strings.HasSuffix(out.String(), fmt.Sprintf("line %d\n", i)) {
				t.Fatalf("after line %d the log is %q", i, out.String())
			}
		}
		o.close()
		if took := time.Since(began); took > 0 {
			t.Errorf("took %s, want no time", took)
		}
		if fmt.Fprint(o, "late"); strings.Contains(out.String(), "late") {
			t.Error("a line was written after the end")
		}
	})
}

// A reader that hangs delays the first line for a moment and the others not at
// all; when it resumes it gets the buffered lines, and how many lines are missing.
func TestAsyncWriterBuffersForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe() // whose writes wait until they are read
		missing := make(chan int, 1)
		o := newAsyncWriter(writer, func(n int) { missing <- n })
		line := strings.Repeat("x", 1<<10)
		began := time.Now()
		for range 2000 {
			fmt.Fprint(o, line)
			o.sync()
		}
		if took := time.Since(began); took != writePatience {
			t.Errorf("2000 lines that are not read took %s, want %s", took, writePatience)
		}
		o.close()
		if took := time.Since(began); took != writePatience+closePatience {
			t.Errorf("the end took %s in all, want its limit", took)
		}
		read := make(chan int)
		go func() {
			all, _ := io.ReadAll(reader)
			read <- len(all)
		}()
		n := <-missing
		synctest.Wait()
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != bufferSize || n != 2000-bufferSize/len(line) {
			t.Errorf("read %d bytes, and %d lines are said to be missing, want %d and %d", got, n, bufferSize, 2000-bufferSize/len(line))
		}
	})
}

// Once it is read again, every line is written at once again.
func TestAsyncWriterCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		o := newAsyncWriter(writer, func(int) { t.Error("lines were dropped") })
		fmt.Fprint(o, "a")
		o.sync()
		fmt.Fprint(o, "b")
		o.sync()
		go func() { _, _ = io.Copy(io.Discard, reader) }()
		time.Sleep(time.Second)
		began := time.Now()
		fmt.Fprint(o, "c")
		o.sync()
		if o.mu.Lock(); o.behind || len(o.pending) > 0 || time.Since(began) > 0 {
			t.Errorf("behind %t with %d bytes, %s later, want all written at once", o.behind, len(o.pending), time.Since(began))
		}
		o.mu.Unlock()
		o.close()
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// countingWriter counts writes. Each write takes a moment.
type countingWriter struct {
	took time.Duration

	mu     sync.Mutex
	writes int
	text   bytes.Buffer
}

func (w *countingWriter) Write(p []byte) (int, error) {
	time.Sleep(w.took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	return w.text.Write(p)
}

func (w *countingWriter) written() (text string, writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String(), w.writes
}

// TestLogWritesTogether checks that lines of several goroutines are written in one
// piece, each before the call that logs it returns.
func TestLogWritesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &countingWriter{took: time.Millisecond}
		log, closeLog := (&Log{LogLevel: "info", LogFormat: "json"}).OpenLog(out, nil)
		defer closeLog()
		const lines = 100
		began := time.Now()
		var group sync.WaitGroup
		for i := range lines {
			group.Go(func() {
				log.With("n", i).InfoContext(t.Context(), "line")
				if text, _ := out.written(); !strings.Contains(text, fmt.Sprintf(`"n":%d}`, i)) {
					t.Errorf("after its call line %d is not written", i)
				}
			})
		}
		group.Wait()
		text, writes := out.written()
		if got := strings.Count(text, "\n"); got != lines {
			t.Errorf("%d lines were written, want %d", got, lines)
		}
		if writes > 3 || time.Since(began) > 3*time.Millisecond {
			t.Errorf("%d lines took %d writes and %s, want at most 3 of each", lines, writes, time.Since(began))
		}
	})
}
