package winservice

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	// logSize is how large a log file grows before it is rotated, as with
	// logrotate on Linux.
	logSize = 100 << 20

	// logFiles is how many files are kept beside the present one.
	logFiles = 4

	// logRetry is how much is written before a failed rotation is tried again.
	logRetry = 1 << 20
)

// LogFile is a log that rotates itself: at 100 MB worker.log becomes worker.log.1,
// and so on up to worker.log.4. Windows cannot rename a file that another program
// holds open without sharing it, as virus scanners do for a moment. The log then
// grows on, and the rotation is tried again a megabyte later.
type LogFile struct {
	path        string
	size, retry int64 // rotate at, and try again after

	mu       sync.Mutex
	file     *os.File
	written  int64
	rotateAt int64
}

// OpenLogFile opens a log for appending, and makes its folder.
func OpenLogFile(path string) (*LogFile, error) { return openLogFile(path, logSize, logRetry) }

func openLogFile(path string, size, retry int64) (*LogFile, error) {
	l := &LogFile{path: path, size: size, retry: retry, rotateAt: size}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // its access list is inherited
		return nil, fmt.Errorf("make the folder of the log: %w", err)
	}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

func (l *LogFile) open() error {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // its access list is inherited
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	l.file, l.written = file, info.Size()
	return nil
}

// Write implements [io.Writer]. It takes whole lines, so none is divided between
// two files.
func (l *LogFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.written > 0 && l.written+int64(len(line)) > l.rotateAt {
		l.rotate()
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(line)
	l.written += int64(n)
	return n, err
}

// rotate renames the files, the present file first, since another program may hold
// this file open. If that fails, it stays the present file.
func (l *LogFile) rotate() {
	_ = l.file.Close() // its lines are written
	l.file = nil
	full := l.path + ".full"
	if err := os.Rename(l.path, full); err != nil {
		l.rotateAt = l.written + l.retry
		return
	}
	for n := logFiles; n > 1; n-- {
		_ = os.Rename(l.name(n-1), l.name(n)) // a file that cannot be renamed is replaced
	}
	_ = os.Rename(full, l.name(1))
	l.rotateAt = l.size
}

// name returns the name of the nth file, where 0 is the present one.
func (l *LogFile) name(n int) string {
	if n == 0 {
		return l.path
	}
	return fmt.Sprintf("%s.%d", l.path, n)
}

// Close closes the present file.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// LastLine returns the last line of a log that a predicate accepts, from its last
// 64 KiB; empty if there is none.
func LastLine(path string, accept func(line string) bool) string {
	const tail = 64 << 10
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(info.Size()-tail, 0)
	data := make([]byte, info.Size()-from)
	if n, err := file.ReadAt(data, from); err != nil && n == 0 {
		return ""
	}
	return lastLine(data, accept)
}

func lastLine(data []byte, accept func(line string) bool) string {
	lines := strings.Split(strings.TrimRight(string(data), "\r\n"), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && accept(line) {
			return line
		}
	}
	return ""
}
