package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
)

// A progress bar appears after barAfter, and is redrawn every barEvery.
const (
	barAfter = 500 * time.Millisecond
	barEvery = 100 * time.Millisecond
)

// screen is the program's output: results on out, messages for people on err. If err
// is a terminal and bars are enabled, it shows a progress bar below the messages; if
// out is a terminal too, results go above the bar.
type screen struct {
	out, err io.Writer
	bars     bool // bars are enabled and possible
	shared   bool // out is a terminal too

	mu    sync.Mutex // guards all writing, and what follows
	what  string     // the work
	begun time.Time  // with begin
	bar   string     // as it is drawn; empty for none
	count int64      // steps since begin
	total int64      // -1 if unknown

	ticks sync.WaitGroup
	stop  chan struct{}
}

func newScreen(out, err io.Writer, bars bool) *screen {
	return &screen{out: out, err: err, bars: bars && cli.CanDraw(err), shared: cli.IsTerminal(out)}
}

// printOut writes to standard output.
func (s *screen) printOut(text string) error { return s.print(s.out, text, s.shared) }

// printErr writes to standard error. Its own errors cannot be reported.
func (s *screen) printErr(text string) { _ = s.print(s.err, text, true) }

func (s *screen) print(w io.Writer, text string, above bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	above = above && s.bar != ""
	if above {
		fmt.Fprint(s.err, cli.ClearLine)
	}
	_, err := io.WriteString(w, text)
	if above {
		fmt.Fprint(s.err, s.bar)
	}
	return err
}

// begin starts a progress bar of that many steps, -1 if unknown. The caller ends it
// before it begins another.
func (s *screen) begin(what string, total int64) {
	if !s.bars || total == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what, s.begun, s.count, s.total, s.bar = what, time.Now(), 0, total, ""
	s.stop = make(chan struct{})
	s.ticks.Go(func() { s.draw(s.stop) })
}

// step counts a step of the work.
func (s *screen) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
}

// end removes the bar.
func (s *screen) end() {
	if s.stop == nil {
		return
	}
	close(s.stop)
	s.ticks.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != "" {
		fmt.Fprint(s.err, cli.ClearLine)
	}
	s.bar, s.stop = "", nil
}

// draw redraws the bar until stop is closed.
func (s *screen) draw(stop <-chan struct{}) {
	next := time.NewTimer(barAfter)
	defer next.Stop()
	for {
		select {
		case <-stop:
			return
		case <-next.C:
		}
		next.Reset(barEvery)
		s.tick()
	}
}

func (s *screen) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fraction, counted := -1.0, fmt.Sprintf("(%d)", s.count)
	if s.total > 0 {
		count := min(s.count, s.total)
		fraction, counted = float64(count)/float64(s.total), fmt.Sprintf("(%d/%d)", count, s.total)
	}
	s.bar = cli.Bar(s.what, fraction, fmt.Sprintf("%s [%s]", counted, time.Since(s.begun).Truncate(time.Second)))
	fmt.Fprint(s.err, s.bar)
}
