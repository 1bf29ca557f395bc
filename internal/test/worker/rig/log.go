package rig

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// Log collects a worker's log.
type Log struct {
	mu    sync.Mutex
	lines []Line
}

// Line is one line of a log, by field.
type Line map[string]any

// Count returns how many lines there are.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Values returns the distinct values of a field.
func (l *Log) Values(field string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	var all []string
	for _, line := range l.lines {
		if text, ok := line[field].(string); ok && !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	return all
}

// Contains reports whether some value of a field contains a text.
func (l *Log) Contains(field, text string) bool {
	for _, value := range l.Values(field) {
		if strings.Contains(value, text) {
			return true
		}
	}
	return false
}

// All returns all lines.
func (l *Log) All() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		var fields Line
		if err := json.Unmarshal(line, &fields); err != nil {
			return 0, err
		}
		l.lines = append(l.lines, fields)
	}
	return len(p), nil
}

// Find returns all lines with that message.
func (l *Log) Find(msg string) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Line
	for _, line := range l.lines {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}
