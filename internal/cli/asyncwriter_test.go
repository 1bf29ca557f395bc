package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A line that is read is written when Write returns, as without an asyncWriter.
func TestAsyncWriterWritesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := newAsyncWriter(&out, func(int) { t.Error("lines were dropped") })
		began := time.Now()
		for i := range 3 {
			fmt.Fprintf(o, "line %d\n", i)
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
// all; when it resumes it gets what was buffered, and how many lines are missing.
func TestAsyncWriterBuffersForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe() // whose writes wait until they are read
		missing := make(chan int, 1)
		o := newAsyncWriter(writer, func(n int) { missing <- n })
		line := strings.Repeat("x", 1<<10)
		began := time.Now()
		for range 2000 {
			fmt.Fprint(o, line)
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
		fmt.Fprint(o, "b")
		go func() { _, _ = io.Copy(io.Discard, reader) }()
		time.Sleep(time.Second)
		began := time.Now()
		fmt.Fprint(o, "c")
		if o.mu.Lock(); o.behind || len(o.lines) > 0 || time.Since(began) > 0 {
			t.Errorf("behind %t with %d lines, %s later, want all written at once", o.behind, len(o.lines), time.Since(began))
		}
		o.mu.Unlock()
		o.close()
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
