//go:build unix

package program

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/job"
)

func TestSnapshotSettings(t *testing.T) {
	const kind = `{"kinds": {"a": {"command": ["sh"], "snapshot": "criu"%s}}}`
	for _, more := range []string{"", `, "concurrency": 2, "max_run": "1h"`, `, "outputs": {"from": ["*.xz"]}`} {
		kinds, err := parseKinds([]byte(strings.Replace(kind, "%s", more, 1)))
		if err != nil || !kinds[0].Snapshot || kinds[0].SnapshotAtStop {
			t.Errorf("with %q: %+v, %v", more, kinds, err)
		}
	}
	atStop, err := parseKinds([]byte(`{"kinds": {"a": {"command": ["sh"], "snapshot": "criu-at-stop"}}}`))
	if err != nil || !atStop[0].Snapshot || !atStop[0].SnapshotAtStop {
		t.Errorf("with criu-at-stop: %+v, %v", atStop, err)
	}
	for more, want := range map[string]string{
		`, "resume_command": ["sh"]`:                      "resume_command has no use with snapshot",
		`, "checkpoint_files": ["a"]`:                     "checkpoint_files has no use with snapshot",
		`, "directory": "/tmp"`:                           "directory has no use with snapshot",
		`, "max_silence": "1m"`:                           "max_silence has no use with snapshot",
		`, "tokens": ["https://storage.azure.com/"]`:      "tokens has no use with snapshot",
		`, "outputs": true`:                               `outputs takes "from"`,
		`, "outputs": {"from": ["a"], "stream": true}`:    "outputs.stream has no use with snapshot",
		`, "outputs": {"from": ["a"], "restore": "list"}`: "outputs.restore has no use with snapshot",
		`, "snapshot": "other"`:                           "",
		`, "snapshot": true`:                              "",
	} {
		if _, err := parseKinds([]byte(strings.Replace(kind, "%s", more, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %q", more, err, want)
		}
	}
}

// TestVersionsOfSnapshots: a worker without the kind's snapshot leaves the state alone, and
// the reverse.
func TestVersionsOfSnapshots(t *testing.T) {
	for version, reads := range map[int]bool{stateFile: false, stateFolder: false, stateSnapshot: true} {
		j := job.New(job.Spec{ID: "a"}, &job.Progress{State: []byte("x"), Version: version})
		if err := j.CheckVersion((&Kind{Snapshot: true}).stateVersions()...); (err == nil) != reads {
			t.Errorf("version %d with snapshot: %v", version, err)
		}
		if err := j.CheckVersion((&Kind{}).stateVersions()...); (err == nil) == reads {
			t.Errorf("version %d without snapshot: %v", version, err)
		}
	}
}

// TestPathsInNamespaces: the program gets paths that are the same on every machine.
func TestPathsInNamespaces(t *testing.T) {
	f := &folder{Folder: &scratch.Folder{Dir: "/scratch/job-1"}, work: "/scratch/job-1/work", temp: "/scratch/job-1/tmp",
		result: "/scratch/job-1/result", checkpoint: "/scratch/job-1/checkpoint", inputs: "/scratch/inputs-1", place: snapshot.Place}
	vars := environ(&Kind{Name: "a", Snapshot: true}, job.New(job.Spec{ID: "a"}, nil), f, func(string) (string, bool) { return "", false })
	text := strings.Join(vars, "\n")
	if strings.Contains(text, "/scratch") || strings.Contains(text, envCheckpoint) {
		t.Errorf("variables with paths of this machine, or with a checkpoint:\n%s", text)
	}
	for _, want := range []string{"HOME=/media/spotworker/work", "TMPDIR=/media/spotworker/tmp", envResult + "=/media/spotworker/result",
		envInputs + "=/media/spotworker/inputs"} {
		if !strings.Contains("\n"+text+"\n", "\n"+want+"\n") {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// TestSnapshotInterval: a program works longer than it is frozen, however short the interval
// of checkpoints is.
func TestSnapshotInterval(t *testing.T) {
	j := job.New(job.Spec{ID: "a"}, nil)
	var asked time.Duration
	job.ControlOf(j).OnSaveInterval(func(cost time.Duration) time.Duration { asked = cost; return time.Second })
	s := &snapshots{run: &programRun{job: j, log: slog.New(slog.DiscardHandler)}}
	for cost, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 4 * time.Second: 36 * time.Second,
	} {
		if s.cost = cost; s.interval() != want || asked != cost {
			t.Errorf("interval with a cost of %s = %s (asked with %s), want %s", cost, s.interval(), asked, want)
		}
	}
}

// TestNeedsOfSnapshots: the needs come from the description in the folder, if that can be
// read. A worker checks them against its machine, and remembers the result of a restore.
func TestNeedsOfSnapshots(t *testing.T) {
	dir := t.TempDir()
	if got := needsOf(dir); got != "" {
		t.Errorf("needs without a description = %q", got)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, snapshot.MetaName), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := needsOf(dir); got != "" { // and it does not wait
		t.Errorf("needs of a pipe = %q", got)
	}
	here := machine.Facts{Kernel: "6.1", Arch: "amd64", PageSize: 4096}
	text := `{"format":1,"root":1000,"last_pid":1000,"machine":{"kernel":"6.1","arch":"amd64","page_size":4096}}`
	if err := errors.Join(os.Remove(filepath.Join(dir, snapshot.MetaName)),
		os.WriteFile(filepath.Join(dir, snapshot.MetaName), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	needs := needsOf(dir)
	if want := machine.Needs(here, nil); needs != want {
		t.Errorf("needs = %q, want %q", needs, want)
	}
	unknown, same := &Handler{kind: Kind{Snapshot: true}}, &Handler{kind: Kind{Snapshot: true, Machine: here}}
	there := here
	there.Kernel = "6.2"
	other := &Handler{kind: Kind{Snapshot: true, Machine: there}}
	if unknown.Offer() != "" || unknown.CheckNeeds(needs) != nil || same.CheckNeeds(needs) != nil || other.CheckNeeds(needs) == nil ||
		same.Offer() == other.Offer() || !strings.HasPrefix(needs, same.Offer()+" ") {
		t.Errorf("checks = %v, %v, %v, offers %q, %q", unknown.CheckNeeds(needs), same.CheckNeeds(needs), other.CheckNeeds(needs), same.Offer(),
			other.Offer())
	}
	none := &Handler{}
	if err := none.CheckNeeds(needs); err == nil || none.Offer() == "" || none.Offer() == presence.OfferFor(needs) {
		t.Errorf("check of a kind without snapshots = %v, offer %q; want an error, and an offer that no snapshot needs", err, none.Offer())
	}
	if err := job.CheckNeeds(none, ""); err != nil {
		t.Errorf("check of a state without needs = %v", err)
	}
	same.unfit.add(needs, errors.New("a library differs"))
	if err := same.CheckNeeds(needs); err == nil {
		t.Error("what a restore found is forgotten")
	}
	same.unfit.until[needs] = unfitError{errors.New("a library differs"), time.Now()}
	if err := same.CheckNeeds(needs); err != nil {
		t.Errorf("CheckNeeds an hour later = %v", err)
	}
}
