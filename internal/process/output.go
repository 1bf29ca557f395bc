package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/plaintext"
)

// Bounds of what a program's output becomes in the log.
const (
	maxLine     = 2 << 10 // bytes of a line; the rest is cut
	linesBurst  = 200     // lines at once
	linesPerSec = 20      // lines per second after that

	// tailBytes is how much of the end of standard error goes into the reason of
	// a failure.
	tailBytes = 600

	// outputGrace is how long the output of a program that has ended is waited
	// for: a process that left its group may hold it open for ever.
	outputGrace = 500 * time.Millisecond
)

// output brings what a program prints into the log, line by line and not more
// than a log can bear, and remembers the end of standard error.
type output struct {
	log     *slog.Logger
	readers sync.WaitGroup
	ours    []*os.File // the ends that are read
	theirs  []*os.File // the ends that the program has

	mu     sync.Mutex
	budget lineBudget
	tail   []byte
}

func newOutput(log *slog.Logger) *output { return &output{log: log} }

// attach gives a command that was not started yet its standard output and error.
func (o *output) attach(cmd *exec.Cmd) error {
	for _, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			o.started(false)
			return err
		}
		o.ours, o.theirs = append(o.ours, ours), append(o.theirs, theirs)
		*to = theirs
	}
	return nil
}

// started says whether the command was started, and has its ends.
func (o *output) started(ok bool) {
	for _, file := range o.theirs {
		_ = file.Close()
	}
	if !ok {
		for _, file := range o.ours {
			_ = file.Close()
		}
		return
	}
	o.readers.Go(func() { o.read(o.ours[0], "stdout", slog.LevelInfo, false) })
	o.readers.Go(func() { o.read(o.ours[1], "stderr", slog.LevelWarn, true) })
}

// finish reads what a program that has ended left to be read, and returns the
// end of its standard error.
func (o *output) finish() string {
	ended := make(chan struct{})
	go func() { o.readers.Wait(); close(ended) }()
	timer := time.NewTimer(outputGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		for _, file := range o.ours {
			_ = file.Close() // which ends the reading
		}
		<-ended
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell(context.Background(), o.budget.dropped())
	return plaintext.Block(string(bytes.TrimSpace(o.tail)))
}

// read reads one stream to its end. It never stops reading: a program that could
// not write would stand still.
func (o *output) read(stream *os.File, name string, level slog.Level, remember bool) {
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReaderSize(stream, maxLine)
	for cut := false; ; {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 && !cut {
			o.line(name, level, line, long, remember)
		}
		if cut = long; err != nil && !long {
			return
		}
	}
}

// line takes note of a line, and logs it if the budget allows.
func (o *output) line(stream string, level slog.Level, line []byte, long, remember bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if remember {
		o.remember(line)
	}
	allowed, dropped := o.budget.take(time.Now())
	o.tell(context.Background(), dropped)
	if text := plaintext.Block(string(bytes.TrimRight(line, "\r\n"))); allowed && text != "" {
		if long {
			text += "…"
		}
		o.log.Log(context.Background(), level, "program output", "stream", stream, "text", text)
	}
}

// tell logs how much was left out.
func (o *output) tell(ctx context.Context, dropped int) {
	if dropped > 0 {
		o.log.WarnContext(ctx, "program output left out: too many lines", "lines", dropped)
	}
}

func (o *output) remember(line []byte) {
	o.tail = append(o.tail, line...)
	if over := len(o.tail) - tailBytes; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
}

// lineBudget bounds the lines of a job: some at once, and so many per second.
type lineBudget struct {
	used int       // of the burst
	at   time.Time // up to when used was reduced
	lost int       // lines since the last one that was allowed
}

// take asks for one line. When it is allowed, dropped is how many were not
// since the one before.
func (b *lineBudget) take(now time.Time) (allowed bool, dropped int) {
	const each = time.Second / linesPerSec
	if b.used == 0 || b.at.IsZero() {
		b.at = now
	}
	if regained := int(now.Sub(b.at) / each); regained > 0 {
		b.used = max(0, b.used-regained)
		b.at = b.at.Add(time.Duration(regained) * each)
	}
	if b.used >= linesBurst {
		b.lost++
		return false, 0
	}
	b.used++
	return true, b.dropped()
}

// dropped returns how many lines were not allowed, once.
func (b *lineBudget) dropped() int {
	lost := b.lost
	b.lost = 0
	return lost
}
