package overview

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/spotworker/spotworker/client"
)

// reads is a source that counts, and fails at the second read.
func reads(n *int) Source {
	return func(_ context.Context, early func(Snapshot)) (Snapshot, error) {
		early(Snapshot{Reading: true, Queues: client.Queues{Jobs: client.Queue{Name: "first", Exists: true}}})
		*n++
		if *n == 2 {
			return Snapshot{}, errors.New("no route\x1b[2J")
		}
		return busy(), nil
	}
}

func newWatch(t *testing.T, n *int) *watch {
	t.Helper()
	return &watch{ctx: t.Context(), title: "spotworker", interval: time.Hour, read: reads(n), width: 80, height: 48}
}

// both returns the commands of a first read: the read, and what waits for a part of it.
func both(t *testing.T, start tea.Cmd) (read, part tea.Cmd) {
	t.Helper()
	batch, ok := start().(tea.BatchMsg)
	if !ok || len(batch) != 2 {
		t.Fatalf("the first read is %v, want two commands", batch)
	}
	return batch[0], batch[1]
}

// A failed read keeps the picture before it, and says how old that is.
func TestWatchKeepsTheLastPicture(t *testing.T) {
	n := 0
	m := newWatch(t, &n)
	if got := strings.Join(m.lines(noon), "\n"); !strings.Contains(got, "reading for the first time") {
		t.Errorf("before the first read: %s", got)
	}
	reads, part := both(t, m.Init())
	done := reads()
	m.Update(part())
	if got := strings.Join(m.lines(noon), "\n"); !strings.Contains(got, "first") || !strings.Contains(got, "the others are being read") {
		t.Errorf("when the queues are read:\n%s", got)
	}
	m.Update(done)
	if got := strings.Join(m.lines(noon), "\n"); !strings.Contains(got, "stranded") || strings.Contains(got, "cannot read") {
		t.Errorf("after the first read:\n%s", got)
	}
	m.Update(m.start()())
	got := strings.Join(m.lines(noon.Add(30*time.Second)), "\n")
	if !strings.Contains(got, "! cannot read, what follows is 30s old: no route\ufffd[2J") || !strings.Contains(got, "stranded") {
		t.Errorf("after a failed read:\n%s", got)
	}
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 6})
	if lines := m.lines(noon); len(lines) > 6 {
		t.Errorf("%d lines for a terminal of 6", len(lines))
	}
}

// However often r is pressed, one read runs at a time, and the next one is due once
// after each interval.
func TestWatchReadsOnceAtATime(t *testing.T) {
	n := 0
	m := newWatch(t, &n)
	first, _ := both(t, m.Init())
	press := tea.KeyPressMsg{Code: 'r', Text: "r"}
	if _, second := m.Update(press); second != nil {
		t.Error("r started a read beside one that runs")
	}
	m.Update(first())
	_, again := m.Update(press)
	if again == nil {
		t.Fatal("r started no read")
	}
	m.Update(again())
	if _, due := m.Update(readNow{after: 1}); due != nil {
		t.Error("the tick after the first read started a third one, though the second read ended since")
	}
	if _, due := m.Update(readNow{after: 2}); due == nil {
		t.Error("the tick after the last read started none")
	}
	if n != 2 {
		t.Errorf("%d reads, want 2", n)
	}
	if _, quit := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
}
