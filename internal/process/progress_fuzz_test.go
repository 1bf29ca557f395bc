package process

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzProgress gives a program's progress file whatever a program may write: what
// is read of it is within its bounds, and it does not matter where one look ended
// and the next began.
func FuzzProgress(f *testing.F) {
	for _, seed := range []string{
		"", "\n", `{"fraction":0.5}`, `{"fraction":0.5}` + "\n", `{"fraction":0.5,"text":"row 7"}` + "\r\n" + `{"fraction":1}` + "\n",
		"{\"fraction\":1e-400}\n", `{"fraction":-0}` + "\n", `{"FRACTION":0.5}` + "\n", "null\n", "0\n", "[]\n{}\n",
		"{\"text\":\"\\ud800\"}\n", "{\"text\":\"\xff\"}\n", "\x00\n{\"fraction\":0.1}\n",
	} {
		f.Add([]byte(seed), uint16(len(seed)/2))
	}
	name := filepath.Join(f.TempDir(), "progress")
	f.Fuzz(func(t *testing.T, data []byte, split uint16) {
		if len(data) > maxProgressLine {
			return // what is long is passed over, which TestProgressFile has
		}
		at := min(int(split), len(data))
		_ = os.Remove(name)
		file := progressFile{name: name}
		appendTo(t, name, string(data[:at]))
		first, badFirst := file.read()
		appendTo(t, name, string(data[at:]))
		second, badSecond := file.read()
		last := second
		if last == nil {
			last = first
		}
		want, bad := parseProgress(data[:bytes.LastIndexByte(data, '\n')+1])
		if fractionOf(last) != fractionOf(want) || (last == nil) != (want == nil) || badFirst+badSecond != bad {
			t.Fatalf("%q, split at %d: %+v and %d bad lines, want %+v and %d as in one look", data, at, last, badFirst+badSecond, want, bad)
		}
		if last != nil && (!(last.Fraction >= 0 && last.Fraction <= 1) || !utf8.ValidString(last.Text)) {
			t.Fatalf("%q: progress %+v is out of bounds", data, last)
		}
	})
}
