// Package printed logs the output of programs, up to a rate limit.
package printed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
	"github.com/spotworker/spotworker/job"
)

// Limits on a program's output in the log.
const (
	MaxLine     = 2 << 10 // bytes of a line; longer lines are truncated
	LinesBurst  = 200     // lines at once
	LinesPerSec = 20      // lines per second after that

	// tailBytes is how much of the end of standard error goes into the reason of
	// a failure.
	tailBytes = 600

	// outputGrace is how long to read on after the program has ended: a process that
	// left its group may hold the output open for ever.
	outputGrace = 500 * time.Millisecond
)

// Output logs a program's output line by line, up to a rate limit, hands all of it to
// the job's own log, and keeps the end of its standard error.
type Output struct {
	log       *slog.Logger
	keep      func(source string, line []byte)
	readers   sync.WaitGroup
	readEnds  []*os.File // the ends that are read
	writeEnds []*os.File // the ends that the program has

	mu    sync.Mutex
	limit lineLimit
	tail  []byte
}

// New returns the output of the job whose handler got ctx.
func New(ctx context.Context, log *slog.Logger) *Output {
	return &Output{log: log, keep: func(source string, line []byte) { job.Print(ctx, source, line) }}
}

// Attach connects the standard output and error of a command that is not started
// yet.
func (o *Output) Attach(cmd *exec.Cmd) error {
	for _, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			o.Started(false)
			return err
		}
		o.readEnds, o.writeEnds = append(o.readEnds, ours), append(o.writeEnds, theirs)
		*to = theirs
	}
	return nil
}

// Started closes the program's ends of the pipes, and starts reading if the command
// was started.
func (o *Output) Started(ok bool) {
	for _, file := range o.writeEnds {
		_ = file.Close()
	}
	if !ok {
		for _, file := range o.readEnds {
			_ = file.Close()
		}
		return
	}
	o.readers.Go(func() { o.read(o.readEnds[0], "stdout", slog.LevelInfo, false) })
	o.readers.Go(func() { o.read(o.readEnds[1], "stderr", slog.LevelWarn, true) })
}

// Finish reads the rest of the output of a program that has ended, and returns the
// end of its standard error.
func (o *Output) Finish() string {
	ended := make(chan struct{})
	go func() { o.readers.Wait(); close(ended) }()
	timer := time.NewTimer(outputGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		for _, file := range o.readEnds {
			_ = file.Close() // ends the readers
		}
		<-ended
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reportDropped(context.Background(), o.limit.dropped())
	return plaintext.Block(string(bytes.TrimSpace(o.tail)))
}

// read reads one stream to its end. It never stops before: a program that cannot
// write would block.
func (o *Output) read(stream *os.File, name string, level slog.Level, remember bool) {
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReaderSize(stream, MaxLine)
	for cut := false; ; {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 && !cut {
			o.handleLine(name, level, line, long, remember)
		}
		if cut = long; err != nil && !long {
			return
		}
	}
}

// handleLine logs a line if the rate limit allows it.
func (o *Output) handleLine(stream string, level slog.Level, line []byte, long, remember bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if remember {
		o.remember(line)
	}
	o.keep(stream, withEllipsis(line, long))
	allowed, dropped := o.limit.allow(time.Now())
	o.reportDropped(context.Background(), dropped)
	if text := plaintext.Block(string(bytes.TrimRight(line, "\r\n"))); allowed && text != "" {
		if long {
			text += "…"
		}
		o.log.Log(context.Background(), level, "program output", "stream", stream, "text", text)
	}
}

// withEllipsis returns a line, and marks it if only its beginning was read.
func withEllipsis(line []byte, long bool) []byte {
	if !long {
		return line
	}
	return append(slices.Clip(line), "…"...)
}

// reportDropped logs how many lines were dropped.
func (o *Output) reportDropped(ctx context.Context, dropped int) {
	if dropped > 0 {
		o.log.WarnContext(ctx, "program output left out: too many lines", "lines", dropped)
	}
}

func (o *Output) remember(line []byte) {
	o.tail = append(o.tail, line...)
	if over := len(o.tail) - tailBytes; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
}

// lineLimit is the rate limit for a job's lines: a burst, and so many per second.
type lineLimit struct {
	used int       // of the burst
	at   time.Time // up to when used was reduced
	lost int       // lines dropped since the last allowed line
}

// allow reports whether one more line may be logged. If so, dropped is the number of
// lines dropped since the previous one.
func (b *lineLimit) allow(now time.Time) (allowed bool, dropped int) {
	const each = time.Second / LinesPerSec
	if b.used == 0 || b.at.IsZero() {
		b.at = now
	}
	if regained := int(now.Sub(b.at) / each); regained > 0 {
		b.used = max(0, b.used-regained)
		b.at = b.at.Add(time.Duration(regained) * each)
	}
	if b.used >= LinesBurst {
		b.lost++
		return false, 0
	}
	b.used++
	return true, b.dropped()
}

// dropped returns the number of lines dropped since the last call.
func (b *lineLimit) dropped() int {
	lost := b.lost
	b.lost = 0
	return lost
}
