//go:build integration && linux

package kubernetes

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
	"github.com/spotworker/spotworker/internal/vmpackage"
)

const (
	container = "data"
	blob      = "blob"
	rangeSize = 4 << 20 // of the reads of a digest job

	// patience bounds every wait.
	patience = 3 * time.Minute
)

// engine runs the worker of an image, as user 65532 and with a read-only root.
type engine interface {
	// command returns the command of a worker with these variables. SIGTERM for the
	// command is SIGTERM for the worker.
	command(t *testing.T, environment []string) *exec.Cmd

	// pid returns the process of the worker that the command started.
	pid(t *testing.T, cmd *exec.Cmd) int
}

// TestImage: a worker of the image starts a job, hands it over after SIGTERM and exits with 0.
// A second one continues from the saved state and commits the result.
func TestImage(t *testing.T) {
	if os.Getuid() != 0 {
		need.Missing(t, "root, for a container")
	}
	image := buildImage(t)
	for name, start := range map[string]func(t *testing.T, image string) engine{"podman": newPodman, "chroot": newChroot} {
		t.Run(name, func(t *testing.T) { handOver(t, start(t, image)) })
	}
}

func buildImage(t *testing.T) string {
	t.Helper()
	image, err := vmpackage.MakeImage(t.Context(), vmpackage.Config{
		Worker: filepath.Join(repository.Root(t), "cmd", "worker"), Version: "test", Time: time.Unix(1e9, 0),
		Architectures: []string{runtime.GOARCH}, Out: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func handOver(t *testing.T, e engine) {
	d := newAccount(t)
	first := d.start(t, e)
	select {
	case <-d.blocked:
	case <-time.After(patience):
		t.Fatalf("the worker read nothing within %s:\n%s", patience, first)
	}
	checkProcess(t, e.pid(t, first.cmd))
	first.end(t)
	j, err := d.client.Get(t.Context(), "job-1")
	if err != nil || j.Status != client.StatusOpen || j.Interruptions != 1 || j.Fraction <= 0 {
		t.Fatalf("job after SIGTERM = %+v, %v, want it open with the first range done:\n%s", j, err, first)
	}
	d.release()
	second := d.start(t, e)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, err := d.client.Wait(ctx, "job-1")
	if err != nil || !strings.Contains(string(result), d.digest) {
		t.Errorf("result = %s, %v, want the digest %s:\n%s", result, err, d.digest, second)
	}
	second.end(t)
	if n := d.reads(0); n != 1 {
		t.Errorf("the first range was read %d times, want once: the second worker continues", n)
	}
}

// checkProcess checks the user of a worker, and that not even root can write to its root.
func checkProcess(t *testing.T, pid int) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(status), "Name:\tworker\n") || !strings.Contains(string(status), "\nUid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("process is not the worker as user 65532:\n%s", status)
	}
	if err := os.WriteFile(filepath.Join(proc, "root", "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("write to the root of the image = %v, want a read-only file system", err)
	}
}

// account is a storage account with one job, which blocks after its first range.
type account struct {
	connection, digest string
	client             *client.Client
	blocked            chan struct{} // closed when the job has blocked
	release            func()

	mu      sync.Mutex
	offsets map[int64]int // how often the range at an offset was read
}

func newAccount(t *testing.T) *account {
	t.Helper()
	server := storage.New(storage.Options{})
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	c, err := client.Open(client.Options{ConnectionString: connection})
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("spotwork"), 3*rangeSize/8)
	sum := sha256.Sum256(content)
	released := make(chan struct{})
	d := &account{
		connection: connection, digest: hex.EncodeToString(sum[:]), client: c, blocked: make(chan struct{}),
		release: sync.OnceFunc(func() { close(released) }), offsets: map[int64]int{},
	}
	t.Cleanup(d.release)
	connected, err := azure.Connect(azure.AccountConfig{ConnectionString: connection})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connected.Container(container).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := connected.Container(container).NewBlockBlobClient(blob).UploadBuffer(t.Context(), content, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	payload := map[string]string{"container": container, "blob": blob}
	if _, err := c.Put(t.Context(), client.Spec{ID: "job-1", Kind: "digest", Payload: payload}); err != nil {
		t.Fatal(err)
	}
	reached := sync.OnceFunc(func() { close(d.blocked) })
	server.OnCall(func(call storage.Call) storage.Fault {
		if call.Operation != "GetBlob" || call.Container != container || call.Range == nil {
			return storage.Fault{}
		}
		d.mu.Lock()
		d.offsets[call.Range.Offset]++
		d.mu.Unlock()
		if call.Range.Offset > 0 {
			reached()
			<-released
		}
		return storage.Fault{}
	})
	return d
}

// reads returns how often the range at an offset was read.
func (d *account) reads(offset int64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offsets[offset]
}

// process is a worker of the image.
type process struct {
	cmd   *exec.Cmd
	log   bytes.Buffer // complete when it has ended
	ended chan error
}

// String returns the log of a process that has ended.
func (p *process) String() string {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-p.ended:
		p.ended <- err
		return p.log.String()
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		err := <-p.ended
		p.ended <- err
		return "the worker does not end:\n" + p.log.String()
	}
}

func (d *account) start(t *testing.T, e engine) *process {
	t.Helper()
	p := &process{ended: make(chan error, 1), cmd: e.command(t, []string{
		"AZURE_STORAGE_CONNECTION_STRING=" + d.connection, "SPOTWORKER_DATA_CONTAINER=" + container,
		"SPOTWORKER_METADATA_ENDPOINT=none", "SPOTWORKER_LISTEN=127.0.0.1:0",
		"SPOTWORKER_INSTANCE=6f3c2b1a-0c4d-4e5f-8a9b-0123456789ab",
	})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = patience // a container that is left keeps the pipe open
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.String() })
	return p
}

// end sends SIGTERM and demands exit code 0.
func (p *process) end(t *testing.T) {
	t.Helper()
	if log := p.String(); !strings.Contains(log, "6f3c2b1a0c4d4e5f8a9b0123456789ab") {
		t.Errorf("the worker's name does not have the pod's UID:\n%s", log)
	}
	err := <-p.ended
	p.ended <- err
	if err != nil {
		t.Errorf("worker ended with %v after SIGTERM, want exit code 0:\n%s", err, &p.log)
	}
}

// podman runs containers with podman and runc. It keeps all of its files in a folder.
type podman struct {
	folder  string
	started int // workers
}

func newPodman(t *testing.T, image string) engine {
	path := need.Command(t, "podman")
	folder, err := os.MkdirTemp("", "spotworker-podman-") //nolint:usetesting // podman may still write there when the test ends
	if err != nil {
		t.Fatal(err)
	}
	p := &podman{folder: folder}
	t.Cleanup(p.remove)
	// The limits stay as they are: to raise them takes a right that a machine may lack.
	if err := os.WriteFile(filepath.Join(p.folder, "containers.conf"), []byte("[containers]\ndefault_ulimits = []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := p.run(ctx, "load", "--input", image).CombinedOutput(); err != nil {
		need.Absent(t, need.Containers, fmt.Sprintf("%s load: %v: %s", path, err, out))
	}
	probe := p.run(ctx, append(p.flags("probe"), "localhost/spotworker:test", "--version")...)
	if out, err := probe.CombinedOutput(); err != nil || string(out) != "worker test\n" {
		need.Absent(t, need.Containers, fmt.Sprintf("%s run: %v: %s", path, err, out))
	}
	return p
}

// remove removes all containers and files. A process of podman may still clean up after a
// container.
func (p *podman) remove() {
	_ = p.run(context.Background(), "rm", "--all", "--force", "--time", "0").Run()
	const tries = 50
	for range tries {
		if os.RemoveAll(p.folder) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *podman) run(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "podman", append([]string{
		"--root", filepath.Join(p.folder, "root"), "--runroot", filepath.Join(p.folder, "run"), "--tmpdir", filepath.Join(p.folder, "tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc",
	}, arguments...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(p.folder, "containers.conf"))
	return cmd
}

// flags are the arguments of podman run. The limits of this process apply.
func (*podman) flags(name string) []string {
	return []string{
		"run", "--rm", "--name", name, "--pull", "never", "--network", "host", "--ulimit", "host", "--read-only",
		"--cap-drop", "all", "--security-opt", "no-new-privileges",
	}
}

func (p *podman) command(_ *testing.T, environment []string) *exec.Cmd {
	p.started++
	arguments := p.flags(p.name())
	for _, e := range environment {
		arguments = append(arguments, "--env", e)
	}
	return p.run(context.Background(), append(arguments, "localhost/spotworker:test")...)
}

// name returns the name of the container that was started last.
func (p *podman) name() string { return "worker-" + strconv.Itoa(p.started) }

func (p *podman) pid(t *testing.T, _ *exec.Cmd) int {
	t.Helper()
	out, err := p.run(t.Context(), "inspect", "--format", "{{.State.Pid}}", p.name()).CombinedOutput()
	n, failed := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || failed != nil {
		t.Fatalf("podman inspect: %v: %s", err, out)
	}
	return n
}

// chroot runs the unpacked image as a process in a mount namespace of its own: with a
// read-only root and a /tmp in memory, and without podman.
type chroot struct{ folder string }

func newChroot(t *testing.T, image string) engine {
	need.Command(t, "unshare")
	c := chroot{t.TempDir()}
	unpack(t, image, c.folder)
	return c
}

func (c chroot) command(_ *testing.T, environment []string) *exec.Cmd {
	const script = `mount --bind "$1" "$1" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" && mount -o remount,ro,bind "$1" &&
		exec chroot --userspec=65532:65532 --groups= "$1" /worker`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", c.folder)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
	return cmd
}

func (chroot) pid(_ *testing.T, cmd *exec.Cmd) int { return cmd.Process.Pid }

// unpack writes the files of an image with one architecture and one layer into a folder.
func unpack(t *testing.T, image, folder string) {
	t.Helper()
	file, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	blobs := map[string][]byte{}
	eachFile(t, file, func(h *tar.Header, content []byte) { blobs[h.Name] = content })
	type descriptor struct{ MediaType, Digest string }
	var manifest struct{ Manifests, Layers []descriptor }
	for name := "index.json"; len(manifest.Layers) == 0; {
		manifest.Manifests = nil
		if err := json.Unmarshal(blobs[name], &manifest); err != nil || len(manifest.Manifests)+len(manifest.Layers) != 1 {
			t.Fatalf("%s = %s, %v, want one manifest or layer", name, blobs[name], err)
		}
		if len(manifest.Manifests) == 1 {
			name = "blobs/" + strings.ReplaceAll(manifest.Manifests[0].Digest, ":", "/")
		}
	}
	layer, err := gzip.NewReader(bytes.NewReader(blobs["blobs/"+strings.ReplaceAll(manifest.Layers[0].Digest, ":", "/")]))
	if err != nil {
		t.Fatal(err)
	}
	eachFile(t, layer, func(h *tar.Header, content []byte) {
		path := filepath.Join(folder, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, content, h.FileInfo().Mode())
		}
		if err := errors.Join(err, os.Chmod(path, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
}

// eachFile calls do for each entry of an archive.
func eachFile(t *testing.T, from io.Reader, do func(h *tar.Header, content []byte)) {
	t.Helper()
	for archive := tar.NewReader(from); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		do(h, content)
	}
}
