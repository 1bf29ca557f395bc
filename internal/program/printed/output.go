// Package printed logs the output of programs, up to a rate limit.
package printed

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
	"github.com/spotworker/spotworker/job"
)

// Limits on a program's output in the log.
const (
	MaxLine     = 2 << 10 // bytes of a line; of longer lines the middle is left out
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
	// Copy, if set before the start, gets the standard output as it is.
	Copy io.Writer

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
	return lastWords(string(o.tail))
}

// read reads one stream to its end. It never stops before: a program that cannot
// write would block. A carriage return ends a line too, which the next one replaces, as in
// a progress bar: the job's log has it until then.
func (o *Output) read(stream *os.File, name string, level slog.Level, remember bool) {
	defer func() { _ = stream.Close() }()
	var now, before line // before ended with a carriage return
	for buffer := make([]byte, 4<<10); ; {
		n, err := stream.Read(buffer)
		if o.Copy != nil && !remember {
			_, _ = o.Copy.Write(buffer[:n])
		}
		for part := buffer[:n]; len(part) > 0; {
			end := bytes.IndexAny(part, "\r\n")
			if end < 0 {
				now.add(part)
				break
			}
			now.add(part[:end])
			if part[end] == '\n' {
				o.handleLine(name, level, now.or(before), remember)
				before = before[:0]
			} else if !now.isBlank() {
				before = append(before[:0], now...)
			}
			now, part = now[:0], part[end+1:]
		}
		text := now.or(before)
		switch {
		case len(text) > 0 && err != nil:
			o.handleLine(name, level, text, remember)
		case len(text) > 0:
			o.keep(name, append([]byte(text.cut()), '\r'))
		}
		if err != nil {
			return
		}
	}
}

// line is a line that is being read. Of a long one it has the beginning and the end.
type line []byte

func (l *line) add(part []byte) {
	*l = append(*l, part...)
	if over := len(*l) - 2*MaxLine; over > 0 {
		*l = slices.Delete(*l, MaxLine/2, MaxLine/2+over)
	}
}

func (l line) isBlank() bool { return len(bytes.TrimSpace(l)) == 0 }

// or returns the line, or the one before if there is nothing to see on it: that is what a
// terminal cleared last.
func (l line) or(before line) line {
	if l.isBlank() && len(before) > 0 {
		return before
	}
	return l
}

// cut returns the line without the middle of a long one.
func (l line) cut() string { return plaintext.Middle(string(l), MaxLine) }

// handleLine logs a line if the rate limit allows it.
func (o *Output) handleLine(stream string, level slog.Level, l line, remember bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := l.cut()
	if remember {
		o.remember(text)
	}
	o.keep(stream, []byte(text))
	allowed, dropped := o.limit.allow(time.Now())
	o.reportDropped(context.Background(), dropped)
	if text = plaintext.Block(text); allowed && text != "" {
		o.log.Log(context.Background(), level, "program output", "stream", stream, "text", text)
	}
}

// reportDropped logs how many lines were dropped.
func (o *Output) reportDropped(ctx context.Context, dropped int) {
	if dropped > 0 {
		o.log.WarnContext(ctx, "program output left out: too many lines", "lines", dropped)
	}
}

func (o *Output) remember(line string) {
	o.tail = append(append(o.tail, line...), '\n')
	if over := len(o.tail) - tailBytes - MaxLine; over > 0 {
		o.tail = slices.Delete(o.tail, 0, over)
	}
}

// lastWords returns the end of a text: the last line without its middle if that is too long.
func lastWords(text string) string {
	text = strings.TrimSpace(text)
	if last := text[strings.LastIndexByte(text, '\n')+1:]; len(last) >= tailBytes {
		return plaintext.Block(plaintext.Middle(last, tailBytes))
	}
	return plaintext.Block(text[max(0, len(text)-tailBytes):])
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
