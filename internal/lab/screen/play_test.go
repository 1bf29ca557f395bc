package screen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// paper is a terminal that keeps all that is written to it.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// until waits for a text on the terminal.
func (p *paper) until(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("terminal does not show %q: %q", text, p.String())
			return
		}
	}
}

// keyboard returns an input, and a function that types into it. It ends with the test.
func keyboard(t *testing.T) (io.Reader, io.Writer) {
	t.Helper()
	in, keys := io.Pipe()
	t.Cleanup(func() { _ = keys.Close() })
	return in, keys
}

func TestPlayKeepsLinesInOrder(t *testing.T) {
	in, _ := keyboard(t)
	out := &paper{}
	why := errors.New("why")
	err := Play(t.Context(), in, out, func(_ context.Context, s *Display) error {
		s.Show(busy())
		out.until(t, "spot_3")
		for i := range 50 {
			fmt.Fprintf(s, "line %d, ", i)
			fmt.Fprintf(s, "its end\nand %d more\n", i)
		}
		fmt.Fprint(s, "without an end")
		s.End()
		fmt.Fprint(s, "the table\n")
		s.End()
		return why
	})
	if !errors.Is(err, why) {
		t.Errorf("Play = %v, want the error of what ran", err)
	}
	text, at := out.String(), 0
	for i := range 50 {
		for _, line := range []string{fmt.Sprintf("line %d, its end", i), fmt.Sprintf("and %d more", i)} {
			next := strings.Index(text[at:], line)
			if next < 0 {
				t.Fatalf("%q is not written after what came before it", line)
			}
			at += next
		}
	}
	if !strings.Contains(text[at:], "without an end") {
		t.Error("a line without an end is lost")
	}
	if !strings.HasSuffix(text, "the table\n") {
		t.Errorf("terminal ends with %q, want what was written after the end, as it stands", text[max(0, len(text)-40):])
	}
}

func TestCtrlCEndsWhatRuns(t *testing.T) {
	for name, key := range map[string]string{"Ctrl-C": "\x03", "q": "q"} {
		t.Run(name, func(t *testing.T) {
			in, keys := keyboard(t)
			err := Play(t.Context(), in, &paper{}, func(ctx context.Context, s *Display) error {
				go func() { _, _ = io.WriteString(keys, key) }()
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Minute):
					return errors.New("not interrupted")
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Play = %v, want context.Canceled", err)
			}
		})
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	in, _ := keyboard(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := Play(ctx, in, &paper{}, func(ctx context.Context, _ *Display) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Play = %v, want context.Canceled", err)
	}
}
