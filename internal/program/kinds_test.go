package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// exe is the end of a program's name, and anyShell is a program that every system has.
var exe, anyShell = map[bool]string{true: ".exe"}[onWindows], map[bool]string{false: "sh", true: "cmd"}[onWindows]

// kindsFile writes a kinds file beside a program, and returns its name.
func kindsFile(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"program" + exe: 0o700, "data": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "here"), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "kinds.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReadKinds(t *testing.T) {
	if !tree.HasLimits {
		need.Missing(t, "limits of processes")
	}
	file := kindsFile(t, `{
  "kinds": {
    "thumbnail": {
      "command": ["./program", "--fast", "", "notes"],
      "directory": "here",
      "environment": {"OMP_NUM_THREADS": "2", "EMPTY": "", "AZURE_CLIENT_ID": null},
      "concurrency": 2,
      "memory": "512MiB", "cpus": 1.5, "processes": 500, "disk": "10GiB",
 "max_checkpoint": "4GiB",
      "max_run": "1h30m", "max_silence": "90s",
      "max_failures": 3, "backoff": "1m"
    },
    "a.b": {"command": ["`+anyShell+`"]}
  }
}`)
	dir := filepath.Dir(file)
	notes := filepath.Join(dir, "here", "notes")
	if err := os.WriteFile(notes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadKinds(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Kind{{
		Name: "thumbnail", Command: []string{filepath.Join(dir, "program"+exe), "--fast", "", "notes"}, Directory: filepath.Join(dir, "here"),
		Files:       []string{notes},
		Environment: map[string]string{"OMP_NUM_THREADS": "2", "EMPTY": ""}, Pass: []string{"AZURE_CLIENT_ID"},
		Memory: 512 << 20, CPUs: 1.5, Processes: 500, Disk: 10 << 30, MaxCheckpoint: 4 << 30,
		Limits: job.Limits{Concurrency: 2, MaxRun: 90 * time.Minute, MaxSilence: 90 * time.Second,
			MaxFailures: 3, Backoff: time.Minute},
	}, {Name: "a.b", Command: got[1].Command}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Kind{})); diff != "" {
		t.Errorf("kinds differ (- want, + got):\n%s", diff)
	}
	text, readErr := os.ReadFile(file)
	for _, mark := range []string{"\ufeff", "\xff\xfe"} {
		marked := append([]byte(mark), text...)
		if mark == "\xff\xfe" {
			marked = []byte(mark + strings.Join(strings.Split(string(text), ""), "\x00") + "\x00")
		}
		if err := errors.Join(readErr, os.WriteFile(file, marked, 0o600)); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadKinds(file); err != nil || len(again) != len(got) {
			t.Errorf("ReadKinds behind the byte order mark %x = %v, %v", mark, again, err)
		}
	}
	if program := got[1].Command[0]; !filepath.IsAbs(program) || filepath.Base(program) != anyShell+exe {
		t.Errorf("program = %s, want the path of %s", program, anyShell)
	}
}

// TestReadKindsRefuses: each error names the place, the mistake and its correction.
func TestReadKindsRefuses(t *testing.T) {
	in := func(settings string) string { return `{"kinds": {"k": {` + settings + `}}}` }
	with := func(setting string) string { return in(`"command": ["./program"], ` + setting) }
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", "1:1: not JSON: it ends too early"},
		{"cut off", "{\n  \"kinds\": {", "2:13: not JSON: it ends too early"},
		{"a comma too many", "{\n  \"kinds\": {},\n}", "3:1: not JSON: "},
		{"a comment", "{ // mine\n}", "1:3: not JSON: invalid character '/'"},
		{"two values", `{"kinds": {"k": {"command": ["./program"]}}} {}`, "1:46: not JSON: more text follows"},
		{"a list", "[]", "1:1: a kinds file is an object"},
		{"no kinds", "{}", "1:1: no kind of job is described here"},
		{"empty kinds", `{"kinds": {}}`, "1:1: no kind of job is described here"},
		{"kinds is a list", `{"kinds": []}`, "1:11: kinds: give an object"},
		{"another top", `{"version": 1}`, "1:2: version: this name is not known here; allowed: gpus, kinds"},
		{"twice", "{\"kinds\": {\"k\": {\"command\": [\"./program\"]},\n \"k\": {}}}", "2:2: kinds.k: this name is given twice"},
		{"a kind's name", `{"kinds": {"a b": {}}}`, `1:12: kind "a b": has ' '`},
		{"a kind is a list", `{"kinds": {"k": ["sh"]}}`, "1:17: kinds.k: give an object"},
		{"no command", in(`"memory": "1MiB"`), `kinds.k: it has no command`},
		{"unknown", with("\n\"comand\": []"), "2:1: kinds.k.comand: this name is not known here; allowed: backoff, checkpoint_files, command, " +
			"concurrency, cpus, "},
		{"an empty command", in(`"command": []`), "kinds.k.command: the program is missing"},
		{"a command line", in(`"command": "ls -l"`), `1:29: kinds.k.command: give a list of texts`},
		{"a number in a command", in(`"command": ["ls", 5]`), "1:36: kinds.k.command[1]: give a text in quotes"},
		{"NUL in a command", in(`"command": ["ls", "a\u0000b"]`), "kinds.k.command[1]: a text for the operating system"},
		{"no such program", in(`"command": ["no-such-program"]`), "1:29: kinds.k.command: there is no program no-such-program in the " +
			"worker's PATH"},
		{"no such path", in(`"command": ["./none"]`), "kinds.k.command: there is no program "},
		{"no program", in(`"command": ["./data"]`), "; chmod +x makes it executable"},
		{"a folder", in(`"command": ["./here"]`), "kinds.k.command: "},
		{"no such directory", with(`"directory": "./none"`), "none is no folder on this machine"},
		{"a file as a directory", with(`"directory": "data"`), "data is no folder on this machine"},
		{"no directory", with(`"directory": ""`), "give a path, or leave it out"},
		{"tokens for no resource", with(`"tokens": ["storage"]`),
			`kinds.k.tokens: "storage" is no resource: give an address such as https://storage.azure.com/`},
		{"tokens for a path", with(`"tokens": ["https://storage.azure.com/x"]`), `is no resource`},
		{"tokens over http", with(`"tokens": ["http://storage.azure.com/"]`), `is no resource`},
		{"a size without a unit", with(`"memory": "512"`), `kinds.k.memory: "512" is no size: give a whole number above 0 with B, KiB, MiB`},
		{"a size of thousands", with(`"disk": "5GB"`), `"5GB" is no size`},
		{"a size as a number", with(`"disk": 5`), `give a size in quotes, such as "512MiB"`},
		{"a size of nothing", with(`"disk": "0B"`), `"0B" is no size`},
		{"a size below nothing", with(`"disk": "-1B"`), `"-1B" is no size`},
		{"a size beyond everything", with(`"disk": "9999999TiB"`), "is no size"},
		{"a broken size", with(`"disk": "1.5GiB"`), "is no size"},
		{"a checkpoint beyond the record", with(`"max_checkpoint": "33GiB"`), "a record holds at most 32 GiB"},
		{"a duration without a unit", with(`"max_run": "10"`), `"10" is no duration`},
		{"a duration as a number", with(`"max_run": 10`), `give a duration in quotes, such as "10m"`},
		{"no duration", with(`"max_run": "0s"`), `"0s" is no duration`},
		{"no GPUs", with(`"gpus": 0`), "kinds.k.gpus: give a whole number above 0"},
		{"GPUs of the machine: a word", `{"gpus": "all"}`, `1:10: gpus: give "auto", "none", or a list`},
		{"GPUs of the machine: none", `{"gpus": []}`, `1:10: gpus: give "auto", "none", or a list`},
		{"GPUs of the machine: a number", `{"gpus": 2}`, `1:10: gpus: give "auto", "none", or a list`},
		{"GPUs of the machine: a range", `{"gpus": ["0-3"]}`, "1:11: gpus[0]: give the index or the UUID of a GPU"},
		{"GPUs of the machine: two in one", `{"gpus": ["0,1"]}`, "gpus[0]: give the index or the UUID of a GPU"},
		{"GPUs of the machine: below 0", `{"gpus": [0, -1]}`, "gpus[1]: give the index or the UUID of a GPU"},
		{"GPUs of the machine: twice", `{"gpus": [1, "1"]}`, "1:14: gpus[1]: GPU 1 is given twice"},
		{"GPUs and a snapshot", with(`"gpus": 1, "snapshot": "criu"`),
			"kinds.k: a program with GPUs cannot be frozen: leave out snapshot or gpus"},
		{"GPUs and a variable", with(`"gpus": 1, "environment": {"CUDA_VISIBLE_DEVICES": "1"}`),
			"CUDA_VISIBLE_DEVICES is set by the worker for jobs with gpus"},
		{"no processors", with(`"cpus": 0`), "give a number of processors from 0.01 to 4096, such as 1.5, without quotes"},
		{"processors in quotes", with(`"cpus": "2"`), "give a number of processors"},
		{"a negative duration", with(`"max_silence": "-1s"`), "is no duration"},
		{"no retries", with(`"max_failures": 0`), "kinds.k.max_failures: give a whole number above 0"},
		{"a back-off of days", with(`"backoff": "48h"`), "longer than 24h0m0s, for which a message can be hidden"},
		{"no concurrency", with(`"concurrency": 0`), "kinds.k.concurrency: give a whole number above 0"},
		{"half a concurrency", with(`"concurrency": 1.5`), "give a whole number above 0"},
		{"a concurrency in quotes", with(`"concurrency": "2"`), "without quotes"},
		{"environment is a list", with(`"environment": ["A=1"]`), "give an object of names and texts"},
		{"environment passes ours", with(`"environment": {"SPOTWORKER_STOP": null}`), "SPOTWORKER_STOP is set by the worker"},
		{"environment has a number", with(`"environment": {"A": 1}`), "kinds.k.environment.A: give a text in quotes"},
		{"environment has no name", with(`"environment": {"A=B": "1"}`), `"A=B" is not the name of a variable`},
		{"environment has ours", with(`"environment": {"SPOTWORKER_RESULT": "1"}`), "SPOTWORKER_RESULT is set by the worker for every job"},
		{"null", with(`"memory": null`), "give a size in quotes"},
		{"deep", with(`"memory": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40)), "more than 20 arrays and objects inside each other"},
	} {
		if onWindows && row.name == "no program" {
			row.want = "give the interpreter of others first"
		}
		file := kindsFile(t, row.text)
		_, err := ReadKinds(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+":") || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: ReadKinds = %v, want an error with %q", row.name, err, row.want)
		}
	}
	if _, err := ReadKinds("no-such-file"); err == nil || !strings.Contains(err.Error(), "no-such-file") {
		t.Errorf("ReadKinds of no file = %v, want an error that names it", err)
	}
}

// FuzzKinds: any kinds file is refused with a place in it, or gives kinds that can be
// run.
func FuzzKinds(f *testing.F) {
	f.Add([]byte(`{"kinds": {"k": {"command": ["sh", "-c", "x"], "memory": "5MiB", "max_run": "5m", "concurrency": 3}}}`))
	f.Add([]byte(`{"kinds": {"k": {"command": ["sh"], "environment": {"A": "b", "B": null}, "directory": "/"}}}`))
	f.Add([]byte(`{"kinds": {"k": []}} x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kinds, err := parseKinds(data)
		if err != nil {
			where, ok := err.(*jsonpos.Error) //nolint:errorlint // it must be one as it stands
			if !ok || where.Offset < 0 || where.Offset > len(data) || where.Problem == "" {
				t.Fatalf("error %#v does not say where", err)
			}
			return
		}
		for i := range kinds {
			if err := checkParsed(&kinds[i].Kind); err != nil {
				t.Fatalf("kind %+v: %v", kinds[i].Kind, err)
			}
		}
	})
}

func checkParsed(k *Kind) error {
	for name := range k.Environment {
		if err := checkVariable(name); err != nil {
			return err
		}
	}
	switch err := jobid.ValidateKind(k.Name); {
	case err != nil:
		return err
	case len(k.Command) == 0 || k.Command[0] == "" || strings.ContainsRune(strings.Join(k.Command, ""), 0):
		return fmt.Errorf("command %q", k.Command)
	case k.Memory < 0 || k.Disk < 0 || k.maxCheckpoint() <= 0 || k.maxCheckpoint() > job.MaxStream:
		return fmt.Errorf("limits %+v", k)
	}
	return k.Limits.Validate()
}

// A kinds file is checked where its programs are not.
func TestCheckKinds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kinds.json")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"kinds": {"a": {"command": ["/no/such/program"], "directory": "nowhere"}}}`)
	if err := CheckKinds(file); err != nil {
		t.Errorf("CheckKinds = %v, want nil for programs that are elsewhere", err)
	}
	if _, err := ReadKinds(file); err == nil {
		t.Error("ReadKinds = nil for a program that is not there, want an error")
	}
	write(`{"kinds": {"a": {"command": ["/no/such/program"], "memory": "much"}}}`)
	if err := CheckKinds(file); err == nil || !strings.HasPrefix(err.Error(), file+":1:") {
		t.Errorf("CheckKinds = %v, want an error that begins with the place in %s", err, file)
	}
	if err := CheckKinds(file + ".not"); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CheckKinds of no file = %v, want that there is none", err)
	}
}
