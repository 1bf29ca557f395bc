package joblog

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var exactly = cmp.Options{cmp.AllowUnexported(Line{}), cmpopts.EquateEmpty()}

// documents draws a document with lines of any bytes; some are left out.
func documents(from, most int) *rapid.Generator[Document] {
	return rapid.Custom(func(t *rapid.T) Document {
		d := Document{Dropped: rapid.IntRange(0, 3).Draw(t, "dropped")}
		for generation := from + 1; generation <= from+most; generation++ {
			if rapid.Bool().Draw(t, "skip") {
				continue
			}
			s := Section{Generation: generation, Worker: fmt.Sprint("vm-", generation), Began: time.Date(2026, 3, 9, 12, generation, 0, 5e6,
				time.UTC)}
			for range rapid.IntRange(0, 6).Draw(t, "lines") {
				s.Count++
				if rapid.IntRange(0, 3).Draw(t, "left out") > 0 {
					s.Lines = append(s.Lines, Line{s.Count, lineOf(t, generation, s.Count)})
				}
			}
			d.Sections = append(d.Sections, s)
		}
		return d
	})
}

// lineOf returns the line of that number, which is the same in every document.
func lineOf(t *rapid.T, generation, number int) string {
	text := bytes.Repeat([]byte{byte(generation), '\n', '\\', 0xff, 'n', ' '}, number)
	return encodeLine([]string{Stdout, "warn", "gpu"}[number%3], time.Duration(number)*time.Second, text)
}

func TestEncodeUndoesParse(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		d := documents(0, 5).Draw(t, "document")
		if diff := cmp.Diff(d, Parse(d.Encode()), exactly); diff != "" {
			t.Fatalf("read again (-written +read)\n%s", diff)
		}
	})
}

func TestLineSurvives(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		after := time.Duration(rapid.Int64Range(0, maxAfter).Draw(t, "after")) * time.Millisecond
		source := rapid.SampledFrom([]string{Stdout, Stderr, "info", "error", "gpu0"}).Draw(t, "source")
		d := Document{Sections: []Section{{Generation: 1, Worker: "w", Count: 1, Lines: []Line{{1, encodeLine(source, after, text)}}}}}
		lines := Parse(d.Encode()).Sections[0].Lines
		if len(lines) != 1 {
			t.Fatalf("%q became %d lines", text, len(lines))
		}
		gotSource, gotAfter, gotText := lines[0].Decode()
		if gotSource != source || gotAfter != after || gotText != string(text) {
			t.Fatalf("line = %q %s %q, want %q %s %q", gotSource, gotAfter, gotText, source, after, text)
		}
	})
}

// TestMerge: merging depends on no order, and repeating it changes nothing.
func TestMerge(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		a, b := documents(0, 4).Draw(t, "a"), documents(0, 4).Draw(t, "b")
		ab := Merge(a, b)
		if diff := cmp.Diff(ab, Merge(b, a), exactly); diff != "" {
			t.Fatalf("merged in the other order (-ab +ba)\n%s", diff)
		}
		if diff := cmp.Diff(ab, Merge(ab, b), exactly); diff != "" {
			t.Fatalf("merged twice (-once +twice)\n%s", diff)
		}
		for _, s := range slices.Concat(a.Sections, b.Sections) {
			for _, l := range s.Lines {
				if !slices.ContainsFunc(ab.Sections, func(m Section) bool {
					return m.Generation == s.Generation && slices.Contains(m.Lines, l)
				}) {
					t.Fatalf("line %d of delivery %d is lost", l.Number, s.Generation)
				}
			}
		}
	})
}

// lines returns how many lines a document has, and how many it has or counts.
func (d Document) lines() (kept, counted int) {
	counted = d.Dropped
	for _, s := range d.Sections {
		kept, counted = kept+len(s.Lines), counted+s.Count
	}
	return kept, counted
}

// TestTail: lines left out are counted, and the newest lines stay.
func TestTail(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		d := documents(0, 20).Draw(t, "document")
		size := rapid.IntRange(200, 3000).Draw(t, "size")
		kept, counted := d.lines()
		tail, whole := d.tail(size)
		if length := encodedSize(string(tail.Encode())); length > size {
			t.Fatalf("tail of %d has %d bytes", size, length)
		}
		if _, after := tail.lines(); after != counted {
			t.Fatalf("tail counts %d lines, and there were %d", after, counted)
		}
		if len(tail.Sections) > 0 && tail.last().Generation != d.last().Generation {
			t.Fatal("tail leaves out the last delivery")
		}
		same := true // the lines that the tail has
		for _, s := range tail.Sections {
			i := slices.IndexFunc(d.Sections, func(o Section) bool { return o.Generation == s.Generation })
			for _, l := range s.Lines {
				same = same && slices.Contains(d.Sections[i].Lines, l)
			}
		}
		if after, _ := tail.lines(); whole != (after == kept && same) {
			t.Fatalf("tail is whole: %t, with %d of %d lines", whole, after, kept)
		}
		if merged := Merge(tail, d); !cmp.Equal(merged, d, exactly) {
			t.Fatalf("a document merged with its tail is another\n%s", cmp.Diff(d, merged, exactly))
		}
	})
}

// TestParseAcceptsEverything: a damaged log is no error, and is stored again as it was
// read.
func TestParseAcceptsEverything(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("#- \n019o\\x\xff"))).Draw(t, "text")
		d := Parse(append([]byte("# 1 2026-03-09T12:00:00.000Z w\n"), text...))
		for _, s := range d.Sections {
			for _, l := range s.Lines {
				l.Decode()
			}
		}
		if diff := cmp.Diff(d, Parse(d.Encode()), exactly); diff != "" {
			t.Fatalf("read again (-first +second)\n%s", diff)
		}
	})
}

// TestGolden: the form in storage does not change.
func TestGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/log.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := Document{Dropped: 12, Sections: []Section{
		{Generation: 2, Worker: "vmss_000001-0123abcd-0", Began: time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC), Count: 40, Lines: []Line{
			{38, encodeLine(Stdout, 1500*time.Millisecond, []byte("epoch 1"))},
			{39, encodeLine(Stderr, 2*time.Second, []byte("warning: a\\b\nnext"))},
		}},
		{Generation: 3, Worker: "vmss_000002-4567cdef-0", Began: time.Date(2026, 3, 9, 13, 30, 0, 0, time.UTC), Count: 2, Lines: []Line{
			{1, encodeLine("info", 0, []byte("resumed epoch=1"))}, {2, encodeLine("gpu0", 3*time.Millisecond, []byte("busy"))},
		}},
	}}
	if got := d.Encode(); !bytes.Equal(got, want) {
		t.Errorf("encoded:\n%s\nwant:\n%s", got, want)
	}
	if diff := cmp.Diff(d, Parse(want), exactly); diff != "" {
		t.Errorf("read (-want +got)\n%s", diff)
	}
}

func TestLogKeepsTheEnd(t *testing.T) {
	l := New(1, "a worker", MinSize, "")
	if l.Pending() || l.Tail() != "" {
		t.Error("an empty log has something to write")
	}
	for n := range 10_000 {
		l.Add(Stdout, fmt.Appendf(nil, "line %d\n", n+1))
		if n == 5 && l.Pending() {
			t.Error("six short lines do not fit into the record")
		}
	}
	l.Add(Stderr, bytes.Repeat([]byte("é"), maxLine))
	d := l.document()
	s := d.Sections[0]
	if _, _, text := s.Lines[len(s.Lines)-1].Decode(); s.Count != 10_001 || !strings.Contains(text, "é…é") || len(text) > maxLine {
		t.Errorf("last line = %d bytes of %d lines, want the ends of the long one as the last of 10,001", len(text), s.Count)
	}
	if size := len(d.Encode()); size > MinSize+100 || size < MinSize/2 || !l.Pending() {
		t.Errorf("log = %d bytes, pending %t, want about %d that are not written yet", size, l.Pending(), MinSize)
	}
	if tail := l.Tail(); encodedSize(tail) > MaxTail || !strings.Contains(tail, "é…é") {
		t.Errorf("tail = %q, want the ends of the long line in at most %d", tail, MaxTail)
	}
}

// TestReplacedLine: a line that ends with a carriage return is replaced by the next of its
// source, also in a blob that has it already.
func TestReplacedLine(t *testing.T) {
	l := New(1, "w", MinSize, "")
	shown := func(d Document) (all []string) {
		for _, s := range d.Sections {
			for _, line := range s.Lines {
				_, _, text := line.Decode()
				all = append(all, text)
			}
		}
		return all
	}
	for _, add := range []struct{ source, text string }{
		{Stderr, "10%\r"}, {Stderr, "20%\r"}, {Stdout, "a\n"}, {Stderr, "30%\r"}, {Stderr, "40%\r"},
	} {
		l.Add(add.source, []byte(add.text))
	}
	text, added := l.encode()
	l.wrote(added)
	l.LeaveRecord()
	if l.Pending() {
		t.Error("a log is pending that was written")
	}
	l.Add(Stderr, []byte("x\n"))
	if !l.Pending() {
		t.Error("a line that replaces a written one is not pending")
	}
	l.Add(Stderr, []byte("y\n"))
	if got, want := shown(Parse(text)), []string{"20%", "a", "40%"}; !slices.Equal(got, want) {
		t.Errorf("log = %q, want %q", got, want)
	}
	after, _ := l.encode()
	for _, d := range []Document{Merge(Parse(text), Parse(after)), Merge(Parse(after), Parse(text))} {
		if got, want := shown(d), []string{"20%", "a", "x", "y"}; !slices.Equal(got, want) {
			t.Errorf("log = %q, want %q", got, want)
		}
	}
}

func TestNothingIsKept(t *testing.T) {
	var o *Output
	o.Add(Stdout, []byte("x"))
	var k *Keeper
	k.Begin()
	k.Finish()
	if o.Pending() || k.Open("a", time.Now(), 1, "w", "") != nil || NewKeeper(nil, 1) != nil {
		t.Error("without a store something is kept")
	}
	o.WriteSoon(t.Context(), time.Second, func(error) { t.Error("a write of nothing") })
	inner := slog.DiscardHandler
	if got := (*Log)(nil).Handler(inner); got != inner {
		t.Error("Handler of nil is not the handler alone")
	}
}
