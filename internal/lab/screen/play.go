package screen

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"

	"github.com/spotworker/spotworker/internal/cli"
)

// Fits reports whether a live picture can be shown: input and output are a
// terminal that can move its cursor.
func Fits(in, out *os.File) bool {
	return cli.IsTerminal(in) && cli.CanDraw(out)
}

// Display shows scenes and text while a function runs. It is safe for concurrent
// use.
type Display struct {
	program *tea.Program
	out     io.Writer
	ended   chan struct{} // closed when the terminal is restored

	mu      sync.Mutex
	partial strings.Builder // an incomplete line
}

// The size of an output that is no terminal.
const (
	unknownWidth  = 80
	unknownHeight = 24
)

// Play calls run with a display on a terminal, and returns its error. Ctrl-C and q
// cancel its context, as does the end of ctx. When Play returns, run has returned
// and the terminal is restored; the text stays in the scrollback.
func Play(ctx context.Context, in io.Reader, out io.Writer, run func(context.Context, *Display) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(&model{interrupt: cancel}, tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithWindowSize(unknownWidth, unknownHeight))
	display := &Display{program: program, out: out, ended: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		defer display.End()
		done <- run(ctx, display)
	}()
	_, failed := program.Run()
	close(display.ended)
	if failed != nil {
		cancel() // nothing can be shown from now on
	}
	return errors.Join(<-done, failed)
}

// End removes the picture and restores the terminal. Later text goes directly to
// it, so it may have more lines than the terminal.
func (s *Display) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partial.Len() > 0 {
		s.print(s.partial.String())
		s.partial.Reset()
	}
	s.program.Send(removal{})
	s.program.Quit()
	<-s.ended
}

// Write prints whole lines above the picture. It implements [io.Writer].
func (s *Display) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return s.out.Write(p)
	default:
	}
	s.partial.Write(p)
	text := s.partial.String()
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return len(p), nil
	}
	s.partial.Reset()
	s.partial.WriteString(text[end+1:])
	s.print(text[:end])
	return len(p), nil
}

// print sends the lines and not a command that prints them: commands run
// concurrently and would change the order.
func (s *Display) print(text string) { s.program.Send(tea.Println(text)()) }

// Show replaces the picture.
func (s *Display) Show(scene Scene) { s.program.Send(scene) }

// removal is the message that removes the picture.
type removal struct{}

// model is the picture as a Bubble Tea model.
type model struct {
	interrupt     context.CancelFunc
	scene         *Scene // nil at first
	width, height int
	removed       bool
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case Scene:
		m.scene = &msg
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if key := msg.String(); key == "ctrl+c" || key == "q" {
			m.interrupt()
		}
	case removal:
		m.removed = true
	}
	return m, nil
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	if m.scene == nil || m.removed {
		return tea.NewView("")
	}
	return tea.NewView(Draw(*m.scene, m.width, m.height))
}
