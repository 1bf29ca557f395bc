package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	want := Command{
		Argv: []string{"./run it", "", "ünïcode \"quotes\" 'too'", "a\nb\tc"}, Environment: map[string]string{"A_1": "", "PATH": "/bin"},
		Files:   []File{{Input: "ab", Path: "data/x", Executable: true}, {Input: "cd", Path: ".", Folder: true}},
		Outputs: []string{"*.png"},
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(raw)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Parse = %v (-want +got)\n%s", err, diff)
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for text, want := range map[string]string{
		``: "it is not JSON", `[]`: "it is no JSON object", `{}`: "argv is empty", `{"argv":[]}`: "argv is empty",
		`{"argv":[""]}`: "argv is empty",
		`{"argv":null}`: "argv is empty", `{"argv":"sh"}`: "field argv is a JSON string", `{"argv":["a",1]}`: "is a JSON number",
		`{"ARGV":["a"]}`: `field "ARGV" is not known`, `{"argv":["a"],"argv":["b"]}`: "given twice", `{"argv":["a"]} x`: "it is not JSON",
		`{"argv":["a"],"shell":true}`: `field "shell" is not known`, `{"argv":["a\u0000b"]}`: "argument 0 of the command has a NUL",
		`{"argv":["a","` + long + `"]}`:                                                     "argument 1 of the command has 131072 bytes",
		`{"argv":["a"` + strings.Repeat(`,"`+long[:maxText]+`"`, 9) + `]}`:                  "arguments and environment have",
		`{"argv":["a"],"environment":{"A":"\u0000"}}`:                                       "variable A has a NUL",
		`{"argv":["a"],"environment":{"A=B":""}}`:                                           "not the name of a variable",
		`{"argv":["a"],"environment":{"A":null,"SPOTWORKER_RESULT":"/x"}}`:                  "is the worker's",
		`{"argv":["a"],"environment":{"spotworker_x":"/x"}}`:                                "is the worker's",
		`{"argv":["a"],"environment":{"IDENTITY_HEADER":"/x"}}`:                             "is the worker's",
		`{"argv":["a"],"environment":{"LD_PRELOAD":"/x"}}`:                                  "env LD_PRELOAD=TEXT PROGRAM",
		`{"argv":["a"],"environment":{"BASH_ENV":"/x"}}`:                                    "would change how the worker starts",
		`{"argv":["a"],"gpus":-1}`:                                                          "gpus is -1; it must be 0 to 1000",
		`{"argv":["a"],"gpus":"1"}`:                                                         "field gpus is a JSON string",
		`{"argv":["a","` + long[:maxInline] + `"],"gpus":1}`:                                "a command with gpus has 15",
		`{"argv":["a"],"files":[{"input":"i","path":"../x"}]}`:                              "no path in the working folder",
		`{"argv":["a"],"files":[{"input":"i","path":"/x"}]}`:                                "no path in the working folder",
		`{"argv":["a"],"files":[{"input":"i","path":"a\\b"}]}`:                              "no path in the working folder",
		`{"argv":["a"],"files":[{"input":"i","path":"."}]}`:                                 "no path in the working folder",
		`{"argv":["a"],"files":[{"input":"../i","path":"x"}]}`:                              "no name of an input",
		`{"argv":["a"],"files":[{"input":"i","path":"x","mode":"777"}]}`:                    "unknown field",
		`{"argv":["a"],"files":[{"input":"i","path":"x"},{"input":"j","path":"x"}]}`:        "the place of two files",
		`{"argv":["a"],"files":[{"input":"i","path":"x/y/z"},{"input":"j","path":"x"}]}`:    `"x" is a file, and cannot have "x/y/z"`,
		`{"argv":["a"],"files":[{"input":"i","path":"output"}]}`:                            "the folder of the command's outputs",
		`{"argv":["a"],"files":[{"input":"i","path":"x","folder":true,"executable":true}]}`: "leave out executable",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s\n got %v\nwant %s", text, err, want)
		}
	}
	if err := (Command{Argv: []string{"a", "\xff"}}).Check(); err == nil || !strings.Contains(err.Error(), "no valid UTF-8") {
		t.Errorf("Check of an argument that JSON would change = %v", err)
	}
}

func TestExitCode(t *testing.T) {
	for reason, want := range map[string]int{
		"the command exited with code 3":                                               3,
		WithCode("the command was ended by signal SIGKILL", 137):                       137,
		WithCode("the command exited with code 4; the processes", 4):                   4,
		"2 failures in a row, the last: the command exited with code 1; x":             1,
		"the command exited with code 5; the end of its standard error: (exit code 6)": 5,
		"silent for 10s": -1,
	} {
		got, ok := ExitCode(reason)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("ExitCode(%q) = %d, %t, want %d", reason, got, ok, want)
		}
	}
}

// FuzzParse: what is accepted can be an argument list, and is accepted again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"argv":["sh","-c","a"],"environment":{"A":"b"},"files":[{"input":"i","path":"x"}],"outputs":["*"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(raw)
		if diff := cmp.Diff(c, again); err != nil || diff != "" {
			t.Errorf("read again: %v\n%s", err, diff)
		}
	})
}
