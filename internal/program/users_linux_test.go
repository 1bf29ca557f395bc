package program

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/test/isolated"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// usersVariable holds the user ids that programs of this test process run as.
const usersVariable = "SPOTWORKER_TEST_PROGRAM_USERS"

// openTestUsers opens the users that all tests of this process share.
var openTestUsers = sync.OnceValues(func() (*sandbox.Users, error) {
	ids, err := sandbox.ParseRange(os.Getenv(usersVariable))
	if err != nil || ids.IsZero() {
		return nil, err
	}
	return sandbox.Open(sandbox.Config{Range: ids, Slots: 4})
})

// testUsers returns the users of this test process, none without the variable.
func testUsers(t *testing.T) *sandbox.Users {
	t.Helper()
	users, err := openTestUsers()
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// scratchParent is a folder that programs of other users may enter.
func scratchParent(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getenv(usersVariable) != "" {
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// writableForAll is a folder that programs of other users may write to.
func writableForAll(t *testing.T) string {
	t.Helper()
	dir := scratchParent(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWithUsers runs the tests of handlers again in a process like a deployed
// worker: not root, with the capabilities of the unit alone, and programs that are
// users of their own. A quick run repeats the attacks, and a sample of the others.
func TestWithUsers(t *testing.T) {
	others := proof.Some(t, 5, []string{
		"TestResult", "TestEnvironment", "TestRestore", "TestStopAndResume", "TestTakeFolder", "TestChildrenEndWithTheirProgram",
		"TestCheckpointThatCannotBeKept", "TestWhatGoesWrong", "TestFlood", "TestProgress", "TestKeptWhileRead", "TestHostileNames.*",
		"TestTooManyProcesses",
	})
	defer lockTestUsers(t)()
	out, err := isolated.AsWorker(t, isolated.WorkerCapabilities(), []string{usersVariable + "=60590-60989"}, "-test.count=1", "-test.v",
		"-test.run", "^(TestAttack.*|"+strings.Join(others, "|")+")$")
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Log(strings.Count(string(out), "--- PASS"), "tests passed")
}

// TestOutputsFromReadOnlyFolders: build tools make folders of results that may not be written.
// A worker that is not root moves the files out of them nevertheless.
func TestOutputsFromReadOnlyFolders(t *testing.T) {
	if os.Getenv(usersVariable) == "" {
		defer lockTestUsers(t)()
		if out, err := isolated.AsWorker(t, isolated.WorkerCapabilities(), []string{usersVariable + "=60590-60989"}, "-test.count=1", "-test.run",
			"^"+t.Name()+"$"); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	b := setup(t)
	k := ownFilesKind(`mkdir -p out/sub; echo 1 >out/sub/a; echo 2 >b; chmod 0555 out/sub out .`, "")
	k.Outputs = &Outputs{From: []string{"out", "b"}}
	sent := &stored{}
	w := b.beginWith(k, sent, nil)
	w.wait(t)
	want := map[string]string{"out/sub/a": "1\n", "b": "2\n"}
	if got := sent.all(); !maps.Equal(got, want) || w.err != nil {
		t.Errorf("outputs = %q, %v, want %q", got, w.err, want)
	}
}

// lockTestUsers waits until no other test run of this machine uses the same user ids, whose
// processes each would kill. It returns the unlock.
func lockTestUsers(t *testing.T) (unlock func()) {
	t.Helper()
	folder, err := os.Open("/tmp") // a lock on the folder itself leaves nothing behind
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = folder.Close() }
}

// TestAttackOnANeighbour: a program that knows where another job's folder is can
// neither list the jobs, nor read a payload, nor replace a result, nor wait for a
// file that the other left for its own user.
func TestAttackOnANeighbour(t *testing.T) {
	b := attacked(t)
	victim := b.begin(script(`trap : TERM; echo "$SPOTWORKER_PAYLOAD" >"$SPOTWORKER_CHECKPOINT"
		until [ -e "$SPOTWORKER_STOP" ]; do sleep 0.1; done
		echo right >"$SPOTWORKER_RESULT.new" && mv "$SPOTWORKER_RESULT.new" "$SPOTWORKER_RESULT"`), "the victim's input", nil)
	b.until("the victim's folder is known", func() bool { return victim.Latest() != nil })
	payload := strings.TrimSpace(stateOf(t, victim.Latest()))
	attack := script(`echo "list:$(ls "$(dirname "$(dirname "$VICTIM")")" 2>/dev/null)"
		echo "payload:$(cat "$VICTIM" 2>/dev/null)"
		(echo forged >"$(dirname "$VICTIM")/result") 2>/dev/null && echo "forged"
		kill -9 $(pgrep -u "$(stat -c %u "$(dirname "$VICTIM")" 2>/dev/null)" 2>/dev/null) 2>/dev/null && echo "killed"
		ls /tmp/spotworker-attack-* >/dev/null 2>&1 && echo "left"
		mkdir /tmp/spotworker-attack-$$`)
	attack.Environment = map[string]string{"VICTIM": payload}
	for range 2 { // the second might find the remains of the first
		w := b.run(withResult(attack), "", nil)
		if got := string(w.result); w.err != nil || got != "list:\npayload:\n" {
			t.Errorf("attack = %q, %v, want that it finds and changes nothing", got, w.err)
		}
		w.Close()
	}
	victim.stop(job.Shutdown, 5*time.Second)
	victim.wait(t)
	if string(victim.result) != "right\n" {
		t.Errorf("victim's result = %q, %v, want its own", victim.result, victim.err)
	}
}

// TestAttackOnTheWorker: a program cannot read its worker's environment and memory,
// nor the scratch folder, and has no way to more rights.
func TestAttackOnTheWorker(t *testing.T) {
	b := attacked(t)
	w := b.run(withResult(script(`for file in environ mem maps cwd fd/1; do
			head -c 1 "/proc/$PPID/$file" >/dev/null 2>&1 && echo "reads $file"
		done
		kill -0 $PPID 2>/dev/null && echo "may signal the worker"
		grep -q '^CapEff:.*0000000000000000$' /proc/self/status || echo "has capabilities"
		[ "$(id -u)" = "$(id -G)" ] || echo "has groups $(id -G)"
		(echo x >../../escape) 2>/dev/null && echo "writes beside the jobs"
		ln -s /etc/shadow "$SPOTWORKER_PROGRESS.new" && mv "$SPOTWORKER_PROGRESS.new" "$SPOTWORKER_PROGRESS"
		mkdir c && ln -s / c/root && mv c "$SPOTWORKER_CHECKPOINT"
		sleep 1; true`)), "", nil)
	if len(w.result) > 0 {
		t.Errorf("the program %q, want nothing", w.result)
	}
	if w.err == nil || !job.IsPermanent(w.err) {
		t.Errorf("Run = %v, want the checkpoint with a link out of it refused", w.err)
	}
}

// TestTooManyProcesses: a program that starts others without end has failed, and the
// reason names the limit, whether it ends or sleeps on. A program beside it starts all
// processes that it needs.
func TestTooManyProcesses(t *testing.T) {
	b := attacked(t)
	const bomb = `i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done` // bounded, should the limit fail
	for name, text := range map[string]string{
		"ends":   bomb,
		"sleeps": `trap "" TERM; (` + bomb + `) & exec sleep 600`,
	} {
		k := script(text)
		k.Processes = 50
		w := b.begin(k, "", nil)
		victim := script(`i=0; while [ $i -lt 40 ]; do sleep 0.02 & sleep 0.01 & wait || exit 1; i=$((i+1)); done`)
		victim.Processes = 50
		if v := b.run(victim, "", nil); v.err != nil {
			t.Errorf("beside a bomb that %s: %v, want success", name, v.err)
		}
		if w.wait(t); w.err == nil || job.IsInterrupted(w.err) || !strings.Contains(w.err.Error(), "the limit of 50 (processes of its kind)") {
			t.Errorf("a bomb that %s: %v, want a failure that names the limit", name, w.err)
		}
		w.Close()
	}
	k := script(`i=0; while [ $i -lt 30 ]; do sleep 0.2 & i=$((i+1)); done; wait`)
	k.Processes = 50
	if w := b.run(k, "", nil); w.err != nil {
		t.Errorf("a program below its limit: %v, want success", w.err)
	}
}

// attacked returns a bench whose programs are users of their own.
func attacked(t *testing.T) *rig {
	t.Helper()
	need.Caller(t, "TestWithUsers", os.Getenv(usersVariable) != "")
	return setup(t)
}

func script(text string) Kind {
	return Kind{Name: "test", Command: []string{"/bin/sh", "-c", text}}
}

// withResult makes the output of a script the result.
func withResult(k Kind) Kind {
	text := "exec 3>&1 >\"$SPOTWORKER_RESULT.new\"\n" + k.Command[2] + "\nmv \"$SPOTWORKER_RESULT.new\" \"$SPOTWORKER_RESULT\""
	return Kind{Name: k.Name, Command: []string{"/bin/sh", "-c", text}, Environment: k.Environment}
}
