package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// bar is a line on a terminal that shows how far something is. A nil bar does nothing.
type bar struct {
	out          io.Writer
	begun, drawn time.Time
}

// bar returns a bar, or nil where standard error is no terminal.
func (p *printer) bar() *bar {
	if !p.bars {
		return nil
	}
	return &bar{out: p.err, begun: time.Now()}
}

// draw draws the bar, at most ten times a second. A negative fraction is not known.
func (b *bar) draw(what string, fraction float64, remark string) {
	if b == nil || time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	fmt.Fprint(b.out, cli.Bar(what, fraction, remark))
}

// clear removes the bar until it is drawn again, so that a line can be printed.
func (b *bar) clear() {
	if b != nil && !b.drawn.IsZero() {
		fmt.Fprint(b.out, cli.ClearLine)
		b.drawn = time.Time{}
	}
}

// jobBar shows how far all jobs are.
type jobBar struct {
	all int

	mu        sync.Mutex
	bar       *bar
	fractions map[string]float64
	sum       float64 // of the fractions
	count     int     // of the jobs that have ended
}

func newJobBar(p *printer, ids []string) *jobBar {
	return &jobBar{all: len(ids), bar: p.bar(), fractions: map[string]float64{}}
}

// progress moves the bar to a job's own fraction.
func (b *jobBar) progress(j client.Job) { b.move(j.ID, j.Fraction, 0) }

// ended moves the bar by the rest of a job.
func (b *jobBar) ended(id string) { b.move(id, 1, 1) }

func (b *jobBar) move(id string, fraction float64, ended int) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count += ended
	b.sum += fraction - b.fractions[id]
	b.fractions[id] = fraction
	b.bar.draw(fmt.Sprintf("%d of %d", b.count, b.all), b.sum/float64(b.all), time.Since(b.bar.begun).Round(time.Second).String())
}

// clear removes the bar until it moves again.
func (b *jobBar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.clear()
}

// byteBar shows how many bytes were written to it, of size, which is 0 if it is not known.
type byteBar struct {
	*bar

	what       string
	done, size int64
}

// Write adds the bytes.
func (b *byteBar) Write(p []byte) (int, error) {
	if b.bar == nil {
		return len(p), nil
	}
	b.done += int64(len(p))
	fraction := -1.0
	if b.size > 0 {
		fraction = float64(b.done) / float64(b.size)
	}
	rate := float64(b.done) / max(time.Since(b.begun).Seconds(), 0.001)
	b.draw(plaintext.Line(b.what), fraction, fmt.Sprintf("%s, %s/s", detail.Size(b.done), detail.Size(int64(rate))))
	return len(p), nil
}
