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

// Fits reports whether a live picture can be shown: both ends are a terminal,
// and one that can move its cursor.
func Fits(in, out *os.File) bool {
	return cli.IsTerminal(in) && cli.IsTerminal(out) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// Stage is where something is shown while it runs. Its methods may be called
// from several goroutines.
type Stage struct {
	program *tea.Program
	out     io.Writer
	ended   chan struct{} // closed when the terminal is as it was before

	mu      sync.Mutex
	partial strings.Builder // a line that has not ended
}

// The size of what is no terminal, and cannot be asked.
const (
	unknownWidth  = 80
	unknownHeight = 24
)

// Play runs something with a stage on a terminal, and returns its error. Ctrl-C
// and q end its context, and so does the end of ctx. When Play returns, run has
// returned and the terminal is as it was before: what was written to the stage
// stays in the scrollback, the picture does not.
func Play(ctx context.Context, in io.Reader, out io.Writer, run func(context.Context, *Stage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(&model{interrupt: cancel}, tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithWindowSize(unknownWidth, unknownHeight))
	stage := &Stage{program: program, out: out, ended: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		defer stage.End()
		done <- run(ctx, stage)
	}()
	_, failed := program.Run()
	close(stage.ended)
	if failed != nil {
		cancel() // nobody sees it any more
	}
	return errors.Join(<-done, failed)
}

// End takes the picture away and gives the terminal back. What is written
// afterwards goes straight to it, so that it may be longer than the terminal is
// high.
func (s *Stage) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partial.Len() > 0 {
		s.print(s.partial.String())
		s.partial.Reset()
	}
	s.program.Send(curtain{})
	s.program.Quit()
	<-s.ended
}

// Write puts whole lines above the picture. It implements [io.Writer].
func (s *Stage) Write(p []byte) (int, error) {
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

// print sends the line itself, not a command that prints it: commands run at
// the same time and would change the order of lines.
func (s *Stage) print(text string) { s.program.Send(tea.Println(text)()) }

// Show replaces the picture.
func (s *Stage) Show(scene Scene) { s.program.Send(scene) }

// curtain is the message that takes the picture away.
type curtain struct{}

// model is the picture as Bubble Tea knows it.
type model struct {
	interrupt     context.CancelFunc
	scene         *Scene // nil before the first
	width, height int
	over          bool
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
	case curtain:
		m.over = true
	}
	return m, nil
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	if m.scene == nil || m.over {
		return tea.NewView("")
	}
	return tea.NewView(Draw(*m.scene, m.width, m.height))
}
