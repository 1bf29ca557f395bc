package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// FuzzMessageToExec: any message on the queue that is decoded gives a command that the
// operating system takes, with the variables of the contract alone.
func FuzzMessageToExec(f *testing.F) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, fields := range []string{
		``, `,"trace":"\u0000"`, `,"trace":"` + trace + `"`, `,"trace":"` + trace + `\u0000"`, `,"trace":"\ud800"`,
		`,"trace":"a=b\nLD_PRELOAD=x"`,
		`,"deadline":"0000-01-01T00:00:00Z"`, `,"max_run":1,"max_silence":1,"estimate":1`, `,"payload":"\u0000"`, `,"payload_base64":"AA=="`,
		`,"inputs":[{"container":"data","blob":"a\u0000b"}]`, `,"inputs":[{"container":"data","blob":"b","to":"../\u0000"}]`,
		`,"x\u0000":"\u0000"`,
	} {
		f.Add(`{"v":1,"id":"a","kind":"k"` + fields + `}`)
		f.Add(`{"v":1,"id":"a","kind":"k"` + fields + `}`)
	}
	f.Add(`{"v":1,"id":"a\u0000","kind":"k"}`)
	f.Add(`{"v":1,"id":"a","kind":"k\u0000"}`)
	program, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	h := &Handler{kind: Kind{Name: "k", Command: []string{program}, Tokens: []string{"https://a"}, Outputs: &Outputs{}}}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		e, err := queue.Decode(text)
		if err != nil {
			return
		}
		j := job.New(job.Spec{ID: e.ID, Kind: e.Kind, Trace: e.Trace, Deadline: e.Deadline, Attempt: 1}, nil)
		cmd, err := h.command(&programRun{job: j, kind: &h.kind,
			folder: &folder{Folder: &scratch.Folder{}, work: dir, restored: true, hasSentList: true, inputs: dir}})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range append(cmd.Environ(), cmd.Args...) {
			if _, err := syscall.BytePtrFromString(entry); err != nil || strings.ContainsAny(entry, "\r\n") {
				t.Fatalf("%q gives %q, which no program can get", text, entry)
			}
		}
		if err := cmd.Err; err != nil {
			t.Fatalf("%q gives a command with %v", text, err)
		}
		all, err := named.Parse(e.Inputs)
		if err != nil {
			return // the job is poison before it has a program
		}
		for _, in := range all {
			if strings.ContainsRune(in.Blob+in.Prefix+in.Manifest+in.To+in.Account+in.Container, 0) || in.To != "" && !filepath.IsLocal(in.To) {
				t.Fatalf("%q gives the input %+v, which is no file", text, in)
			}
		}
	})
}
