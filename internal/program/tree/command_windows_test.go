package tree

import (
	"strings"
	"testing"
)

// TestBatchLine compares with the lines that cmd's rules demand.
func TestBatchLine(t *testing.T) {
	for _, row := range []struct{ argument, want string }{
		{"plain-1.2_3", "plain-1.2_3"},
		{"", `""`},
		{"two words", `"two words"`},
		{`dir\`, `"dir\\"`},
		{`say "hi"`, `"say ""hi"""`},
		{`\"`, `"\\"""`},
		{"a&calc.exe", `"a&calc.exe"`},
		{"%PATH%", `"%%cd:~,%PATH%%cd:~,%"`},
		{"Übung", `"Übung"`},
	} {
		if got, want := batchLine([]string{`C:\a b\run.cmd`, row.argument}), `cmd.exe /e:ON /v:OFF /d /c ""C:\a b\run.cmd" `+row.want+
			`"`; got != want {
			t.Errorf("batchLine(%q) = %s, want %s", row.argument, got, want)
		}
	}
}

// TestCheckCommand has commands that Windows cannot start.
func TestCheckCommand(t *testing.T) {
	for _, row := range []struct {
		argv []string
		want string // part of the error, empty for none
	}{
		{[]string{`C:\a\program.exe`, "a\nb"}, ""},
		{[]string{`C:\a\program.EXE`}, ""},
		{[]string{`C:\a\run.cmd`, "a"}, ""},
		{[]string{`C:\a\run.BAT`, "a\nb"}, "line breaks"},
		{[]string{`C:\100%\run.bat`}, "must not have %"},
		{[]string{`C:\a\job.py`}, `give their interpreter first`},
		{[]string{`C:\a\job`}, `give their interpreter first`},
		{[]string{`C:\` + strings.Repeat("long", 70) + ".exe"}, "at most 258"},
	} {
		if err := CheckCommand(row.argv); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("CheckCommand(%q) = %v, want an error with %q", row.argv, err, row.want)
		}
	}
}
