package process

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"unicode/utf8"
)

// Bounds of what is read of a program's progress.
const (
	maxProgressLine = 4 << 10  // bytes of a line; a longer one is not read
	maxProgressRead = 64 << 10 // bytes at one look; what is before them is passed over
)

// told is what a program says of its progress.
type told struct {
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text"`
}

// progressFile is read from where the last look ended.
type progressFile struct {
	name string
	at   int64
}

// read returns the last thing that the program told since the last look, and how
// many lines could not be understood. Lines that are not finished wait.
func (f *progressFile) read() (last *told, bad int) {
	info, err := os.Lstat(f.name)
	if err != nil || !info.Mode().IsRegular() || info.Size() == f.at {
		return nil, 0
	}
	if info.Size() < f.at {
		f.at = 0 // the program began the file anew
	}
	skipped := info.Size()-f.at > maxProgressRead
	if skipped {
		f.at = info.Size() - maxProgressRead
	}
	file, err := openRegular(f.name)
	if err != nil {
		return nil, 0
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, f.at, maxProgressRead))
	if err != nil {
		return nil, 0
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	f.at += int64(len(whole))
	if len(whole) == 0 && len(data) > maxProgressLine {
		f.at += int64(len(data)) // no line of ours
	}
	if skipped { // to the middle of a line
		whole = whole[bytes.IndexByte(whole, '\n')+1:]
	}
	return parseProgress(whole)
}

// parseProgress returns the last line that says something, and counts those that
// do not say it in the form that is agreed on.
func parseProgress(data []byte) (last *told, bad int) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var t told
		if len(line) > maxProgressLine || !utf8.Valid(line) || json.Unmarshal(line, &t) != nil || !(t.Fraction >= 0 && t.Fraction <= 1) {
			bad++
			continue
		}
		last = &t
	}
	return last, bad
}
