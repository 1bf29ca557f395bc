package producer

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestInterruptible(t *testing.T) {
	text := strings.Repeat("0123456789", 10000)
	got, err := io.ReadAll(Interruptible(t.Context(), strings.NewReader(text)))
	if err != nil || string(got) != text {
		t.Errorf("read %d bytes, %v; want %d", len(got), err, len(text))
	}
	broken := errors.New("input broken")
	if _, err := io.ReadAll(Interruptible(t.Context(), &cutReader{err: broken})); !errors.Is(err, broken) {
		t.Errorf("read of a broken input = %v, want its error", err)
	}
}

// A terminal without input does not block the end.
func TestInterruptibleEndsWithItsContext(t *testing.T) {
	terminal, keyboard := io.Pipe()
	defer func() { _ = keyboard.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	in := Interruptible(ctx, terminal)
	cause := errors.New("Ctrl-C")
	go cancel(cause)
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, cause) {
		t.Errorf("Read after the end = %v, want %v", err, cause)
	}
}

func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file, remove, err := Spool(strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := io.ReadAll(file); err != nil || string(got) != "text" {
			t.Errorf("read %q, %v; want the text", got, err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	broken := errors.New("input broken")
	if _, _, err := Spool(&cutReader{text: "x", err: broken}); !errors.Is(err, broken) {
		t.Errorf("Spool of a broken input = %v, want its error", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v; want nothing", left, err)
	}
}
