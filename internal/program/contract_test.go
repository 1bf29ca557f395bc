package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestProgressFile writes to the file bit by bit, as programs do.
func TestProgressFile(t *testing.T) {
	f := progressFile{name: filepath.Join(t.TempDir(), "progress")}
	if last, bad := f.read(); last != nil || bad != 0 {
		t.Errorf("read without a file = %v, %d, want nothing", last, bad)
	}
	long := strings.Repeat("x", maxProgressLine+1)
	for _, row := range []struct {
		name   string
		append string
		want   float64 // -1 for nothing new
		bad    int
	}{
		{"nothing", "", -1, 0},
		{"a line", `{"fraction":0.1}` + "\n", 0.1, 0},
		{"half a line", `{"fraction":`, -1, 0},
		{"the other half", `0.2}` + "\n", 0.2, 0},
		{"several lines", `{"fraction":0.3}` + "\n" + `{"fraction":0.4}` + "\n", 0.4, 0},
		{"nonsense behind", `{"fraction":0.5}` + "\nnonsense\n", 0.5, 1},
		{"empty lines", "\n\n", -1, 0},
		{"out of range", `{"fraction":1.1}` + "\n" + `{"fraction":-1}` + "\n", -1, 2},
		{"unknown members", `{"fraction":0.6,"eta":5}` + "\n", 0.6, 0},
		{"another type", `{"fraction":"0.7"}` + "\n", -1, 1},
		{"not UTF-8", "{\"fraction\":0.7,\"text\":\"\xff\"}\n", -1, 1},
		{"a long line", `{"text":"` + long + `"}` + "\n", -1, 1},
		{"more than is read at once", strings.Repeat(`{"fraction":0.8}`+"\n", 10_000) + `{"fraction":0.81}` + "\n", 0.81, 0},
		{"a line without end", strings.Repeat(long, 40), -1, 0},
		{"after it", "\n" + `{"fraction":0.9}` + "\n", 0.9, 0},
	} {
		appendTo(t, f.name, row.append)
		last, bad := f.read()
		if got := fractionOf(last); got != row.want || bad != row.bad {
			t.Errorf("%s: read = %v, %d bad, want %v, %d", row.name, got, bad, row.want, row.bad)
		}
	}
	if err := os.WriteFile(f.name, []byte(`{"fraction":0.95}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if last, _ := f.read(); fractionOf(last) != 0.95 {
		t.Errorf("read of a truncated file = %v, want 0.95", last)
	}
}

func fractionOf(t *report) float64 {
	if t == nil {
		return -1
	}
	return t.Fraction
}

func appendTo(t *testing.T, name, text string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzProgress gives a program's progress file any content: the text read of it is within
// its bounds, and it does not matter where one look ended and the next began.
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
			return // long lines are passed over; TestProgressFile has them
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
