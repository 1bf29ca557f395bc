package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const clearLine = "\x1b[2K\r"

// terminal is the screen that a person sees, and a file beside it.
type terminal struct{ out, err bytes.Buffer }

// screenOn is a screen on a terminal, with out on it as well or on a file.
func screenOn(term *terminal, shared bool) *screen {
	s := &screen{out: &term.out, err: &term.err, bars: true, shared: shared}
	if shared {
		s.out = &term.err
	}
	return s
}

func TestScreenShowsABar(t *testing.T) {
	for _, row := range []struct {
		total int64
		want  []string
	}{
		{10, []string{"enqueueing", "50%", "(5/10)", "[2s]"}},
		{-1, []string{"enqueueing", "(5)", "[2s]"}},
		{4, nil}, // more than there were said to be: done at 4
	} {
		synctest.Test(t, func(t *testing.T) {
			term := &terminal{}
			s := screenOn(term, false)
			s.begin("enqueueing", row.total)
			for range 5 {
				time.Sleep(400 * time.Millisecond)
				s.step()
			}
			time.Sleep(150 * time.Millisecond)
			s.end()
			shown := term.err.String()
			frames := strings.Split(shown, "\r")
			for _, want := range row.want {
				if last := frames[len(frames)-2]; !strings.Contains(last, want) {
					t.Errorf("total %d: bar shows %q, want %q in it", row.total, last, want)
				}
			}
			if !strings.HasSuffix(shown, clearLine) || strings.Contains(shown, "5/4") {
				t.Errorf("total %d: terminal ends with %q, want the bar gone", row.total, shown[max(0, len(shown)-20):])
			}
		})
	}
}

// Short work, no work and an output that is no terminal show no bar.
func TestScreenShowsNoBar(t *testing.T) {
	for name, row := range map[string]struct {
		bars  bool
		total int64
		work  time.Duration
	}{
		"short":       {true, 10, barAfter - time.Millisecond},
		"nothing":     {true, 0, time.Minute},
		"no terminal": {false, 10, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			term := &terminal{}
			s := screenOn(term, false)
			s.bars = row.bars
			s.begin("enqueueing", row.total)
			time.Sleep(row.work)
			s.step()
			s.printErr("word\n")
			s.end()
			if got := term.err.String(); got != "word\n" {
				t.Errorf("%s: terminal shows %q, want the word alone", name, got)
			}
		})
	}
}

// Lines go above the bar, which is redrawn below them; what goes to a file is
// not touched.
func TestScreenPrintsAboveTheBar(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			term := &terminal{}
			s := screenOn(term, shared)
			s.begin("enqueueing", 10)
			time.Sleep(time.Second + time.Millisecond)
			if err := s.printOut("id\n"); err != nil {
				t.Fatal(err)
			}
			s.printErr("word\n")
			s.end()
			shown := term.err.String()
			want := []string{clearLine + "word\n" + clearLine + "enqueueing"}
			if shared {
				want = append(want, clearLine+"id\n"+clearLine+"enqueueing")
			}
			for _, text := range want {
				if !strings.Contains(shown, text) {
					t.Errorf("shared %t: terminal shows %q, want %q in it", shared, shown, text)
				}
			}
			if got := term.out.String(); !shared && got != "id\n" {
				t.Errorf("file has %q, want the id alone", got)
			}
		})
	}
}
