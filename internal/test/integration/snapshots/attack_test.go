//go:build integration && linux

package snapshots

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// attacks are tried by a hostile program, before its snapshot and after the restore. It prints
// those that succeed.
const attacks = `
import ctypes, os, re, socket, time
libc = ctypes.CDLL(None, use_errno=True)

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")

def environment():
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        try:
            text = open(f"/proc/{pid}/environ").read()
        except OSError:
            continue
        if "attack-secret" in text:
            return
    raise OSError("nothing there")

def capabilities():
    status = open("/proc/self/status").read()
    if not re.search(r"(?m)^Cap(Eff|Prm|Amb):\s+0*[1-9a-f]", status):
        raise OSError("none")

all = {
    "a secret in an environment": environment,
    "capabilities": capabilities,
    "a file of root": lambda: open(%q),
    "a file of another job": lambda: open(%q),
    "the worker's folder of jobs": lambda: os.listdir(%q),
    "a file beside the job's folder": lambda: open("/media/new", "w"),
    "a rename of the job's folder": lambda: os.rename("/media/spotworker", "/media/other"),
    "a mount": lambda: call(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "an unmount": lambda: call(libc.umount2(b"/media/spotworker", 2)),
    "a chroot": lambda: os.chroot("/tmp"),
    "another user": lambda: os.setuid(0),
    "another group": lambda: os.setgroups([0]),
    "a device": lambda: os.mknod("device", 0o20600, os.makedev(1, 1)),
    "the init's memory": lambda: open("/proc/1/mem", "r+b"),
    "the init's files": lambda: os.readlink("/proc/1/fd/0"),
    "the init's root": lambda: os.listdir("/proc/1/root"),
    "the init's namespaces": lambda: call(libc.setns(os.open("/proc/1/ns/user", os.O_RDONLY), 0)),
    "the choice of PIDs": lambda: open("/proc/sys/kernel/ns_last_pid", "wb", buffering=0).write(b"5"),
    "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "a trace of the init": lambda: call(libc.ptrace(16, 1, 0, 0)),
}

def attack():
    done = []
    for name, attempt in all.items():
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    return done

before = attack()
os.kill(1, 9) # of the same user, and ignored by the kernel
print("running", flush=True)
while not os.path.exists("finish"): time.sleep(0.02)
open(os.environ["SPOTWORKER_RESULT"], "w").write(f"{len(all)} attacks; before {before}, after {attack()}")
`

// TestHostileProgram: a program has no more rights in its namespaces than its user, before a
// snapshot and after a restore.
func TestHostileProgram(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	const python = "/usr/bin/python3" // which every user may run
	if _, err := os.Stat(python); err != nil {
		need.Missing(t, python)
	}
	users := usersIn(t, "61020-61029")
	dir := t.TempDir()
	for _, part := range []string{filepath.Dir(dir), dir} { // the users pass through
		if err := os.Chmod(part, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	ofRoot, ofOther := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	for name, user := range map[string]int{ofRoot: 0, ofOther: 61039} {
		if err := os.WriteFile(name, []byte("attack-secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, user, user); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t, users)
	code := fmt.Sprintf(attacks, ofRoot, ofOther, m.scratch.Parent())
	k := program.Kind{Name: "hostile", Command: []string{python, "-c", code}, Snapshot: true}
	r := m.begin(k, nil, never)
	r.untilRunning(nil)
	state := r.evict()
	got := newMachine(t, usersIn(t, "61030-61038")).finish(k, state)
	if got != "20 attacks; before [], after []" {
		t.Errorf("the program reports %s, want that no attack succeeds", got)
	}
}

// TestHostileSnapshot: a snapshot whose description names other places, or whose folder has a
// link to elsewhere, is refused or stays in the job's folder.
func TestHostileSnapshot(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	m := newMachine(t, nil)
	r := m.begin(k, nil, never)
	r.untilRunning(nil)
	state := r.evict()
	for name, change := range map[string][2]string{
		"a PID of the init":      {`"root":1000`, `"root":0001`},
		"a path to elsewhere":    {`{"p":"tmp"`, `{"p":"../"`},
		"another format":         {`"format":1`, `"format":9`},
		"an absolute path":       {`{"p":"shm"`, `{"p":"/et"`},
		"a description in parts": {`"machine":{`, `"machine":[`},
	} {
		bad := bytes.Replace(state, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, state) {
			t.Fatalf("%s: the snapshot has no %s", name, change[0])
		}
		m := newMachine(t, nil)
		r := m.begin(k, bad, never)
		r.wait()
		if !job.IsPermanent(r.err) || r.Latest().HasState() || strings.Contains(m.log.String(), "program continues") {
			t.Errorf("%s: Run = %q, %v, want a permanent error; log:\n%s", name, r.result, r.err, m.log)
		}
	}
}

// TestStoredSnapshotChanged: a snapshot whose stored bytes do not have the record's hash is not
// restored. Nothing of it runs: the attempt fails with the reason.
func TestStoredSnapshotChanged(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := pythonKind(t)
	server, c := storageWithJob(t, k)
	m := newMachine(t, nil)
	stop := m.startWorker(server, k)
	m.untilRuns(false)
	stop()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	stored := server.Blobs(names.Records)
	if len(stored) != 1 {
		t.Fatalf("%d records, want one", len(stored))
	}
	_, body, _ := server.ReadBlob(names.Records, stored[0].Name)
	changed := bytes.ReplaceAll(body, []byte("running"), []byte("attacks")) // in the program's memory
	if bytes.Equal(changed, body) {
		t.Fatal("the snapshot has not the program's memory")
	}
	metadata := map[string]*string{}
	for key, value := range stored[0].Metadata {
		metadata[key] = &value
	}
	blob := account.Container(names.Records).NewBlockBlobClient(stored[0].Name)
	with := &blockblob.UploadOptions{Metadata: metadata}
	if _, err := blob.Upload(t.Context(), streaming.NopCloser(bytes.NewReader(changed)), with); err != nil {
		t.Fatal(err)
	}
	m = newMachine(t, nil)
	stop = m.startWorker(server, k)
	until(t, m, "a failure", func() bool {
		j, err := c.Get(t.Context(), "job-1")
		return err == nil && j.Failures > 0
	})
	stop()
	if !strings.Contains(m.log.String(), "do not have the hash that was saved") || m.runs(true) || m.runs(false) {
		t.Errorf("want the wrong hash as the failure, before the program runs; log:\n%s", m.log)
	}
}
