package overview

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Source reads a snapshot. It may call early once with a part of it.
type Source func(ctx context.Context, early func(Snapshot)) (Snapshot, error)

// Watch shows snapshots on a terminal until q or Ctrl-C is pressed or ctx ends: one at
// once, and another one each interval after the last was read. If a read fails, its
// error is shown above the previous snapshot.
func Watch(ctx context.Context, in io.Reader, out io.Writer, title string, interval time.Duration, read Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &watch{ctx: ctx, title: title, interval: interval, read: read, width: 80, height: 24}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return nil // the end that was asked for
	}
	return err
}

// watch is the model of the live view.
type watch struct {
	ctx      context.Context //nolint:containedctx // Bubble Tea's commands take none
	title    string
	interval time.Duration
	read     Source

	width, height int
	last          *Snapshot
	growths       growths
	err           error // of the last read
	reading       bool
	reads         int // that have ended
}

// readDone is the message that a read has ended.
type readDone struct {
	snapshot Snapshot
	err      error
}

// readEarly is the message that a part of the first snapshot was read.
type readEarly struct{ snapshot Snapshot }

// readNow is the message that a read is due, if none has ended since it was scheduled.
type readNow struct{ after int }

// Init starts the first read.
func (m *watch) Init() tea.Cmd { return m.start() }

// start returns the command that reads, or nil while one does.
func (m *watch) start() tea.Cmd {
	if m.reading {
		return nil
	}
	m.reading = true
	if m.last != nil {
		return func() tea.Msg { return m.done(func(Snapshot) {}) }
	}
	part := make(chan tea.Msg, 1)
	return tea.Batch(func() tea.Msg {
		defer close(part)
		return m.done(func(s Snapshot) { part <- readEarly{s} })
	}, func() tea.Msg { return <-part })
}

// done reads a snapshot.
func (m *watch) done(early func(Snapshot)) tea.Msg {
	s, err := m.read(m.ctx, early)
	return readDone{snapshot: s, err: err}
}

// Update handles keys, the terminal's size and reads.
func (m *watch) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tea.KeyPressMsg:
		switch message.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "r", "space":
			return m, m.start()
		}
	case readNow:
		if message.after == m.reads {
			return m, m.start()
		}
	case readEarly:
		if m.last == nil {
			m.last = &message.snapshot
		}
	case readDone:
		m.reading, m.err = false, message.err
		m.reads++
		if message.err == nil {
			m.last = &message.snapshot
			m.last.Growing = m.growths.add(m.last)
		}
		after := m.reads
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return readNow{after} })
	}
	return m, nil
}

// View draws the last snapshot.
func (m *watch) View() tea.View {
	view := tea.NewView(strings.Join(m.lines(time.Now()), "\n"))
	view.AltScreen = true
	return view
}

var (
	headStyle    = lipgloss.NewStyle().Bold(true)
	problemStyle = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

// lines are the lines of the screen.
func (m *watch) lines(now time.Time) []string {
	state := "reading for the first time"
	if m.last != nil && !m.last.Reading {
		state = fmt.Sprintf("%s  read in %s, every %s; r reads now, q quits", m.last.At.Format(time.TimeOnly),
			m.last.Took.Round(10*time.Millisecond), m.interval)
	}
	lines := []string{headStyle.Render(table.Cut(m.title+"  "+state, m.width))}
	if m.err != nil {
		age := ""
		if m.last != nil {
			age = fmt.Sprintf(", what follows is %s old", Span(now.Sub(m.last.At)))
		}
		lines = append(lines, problemStyle.Render(table.Cut("! cannot read"+age+": "+plaintext.Line(m.err.Error()), m.width)))
	}
	if m.last == nil {
		return lines
	}
	for _, line := range Draw(*m.last, m.width, m.height-len(lines)) {
		if strings.HasPrefix(line, "! ") {
			line = problemStyle.Render(line)
		}
		lines = append(lines, line)
	}
	return lines
}
