package cli

import (
	"bytes"
	"sync"
)

// TailSize is how much of a log a [Tail] keeps, in bytes.
const TailSize = 64 << 10

// Tail keeps the last lines that are written to it. A nil *Tail has none.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer].
func (t *Tail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, line...)
	if len(t.text) > 2*TailSize { // seldom, so that a line is not moved each time
		t.text = append(t.text[:0], lastLines(t.text)...)
	}
	return len(line), nil
}

// String returns the last whole lines.
func (t *Tail) String() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.text) <= TailSize {
		return string(t.text)
	}
	return string(lastLines(t.text))
}

// lastLines returns the whole lines within the last TailSize bytes of a longer text.
func lastLines(text []byte) []byte {
	_, lines, _ := bytes.Cut(text[len(text)-TailSize:], []byte("\n"))
	return lines
}
