//go:build integration && linux

package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

var (
	documentedFile = regexp.MustCompile("(?s)```dockerfile\n(.*?)```")
	baseImage      = regexp.MustCompile(`(?m)^FROM (\S+)$`)
)

// TestDockerfile builds the Dockerfile of docs/deploy.md with podman, from a base with the
// Python of Debian in .tools in place of the image that it names. Nothing is pulled. A job of a
// program in Python gets its result from a container of it.
func TestDockerfile(t *testing.T) {
	if os.Getuid() != 0 {
		need.Missing(t, "root, for a container")
	}
	page, err := os.ReadFile(filepath.Join(repository.Root(t), "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := documentedFile.FindSubmatch(page)
	if found == nil || baseImage.FindSubmatch(found[1]) == nil {
		t.Fatal("docs/deploy.md has no Dockerfile")
	}
	base := string(baseImage.FindSubmatch(found[1])[1])
	image := buildImage(t)
	p := newPodman(t, image).(*podman)
	importDebian(t, p, "localhost/"+base)

	content := t.TempDir()
	unpacked := t.TempDir()
	unpack(t, image, unpacked)
	if err := os.Rename(filepath.Join(unpacked, "worker"), filepath.Join(content, "worker")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Dockerfile": string(found[1]),
		"kinds.json": `{"kinds": {"greet": {"command": ["python3", "/jobs/job.py"]}}}`,
		"job.py": "import json, os\nname = json.load(open(os.environ['SPOTWORKER_PAYLOAD']))\n" +
			"new = os.path.join(os.environ['TMPDIR'], 'new')\nwith open(new, 'w') as f:\n    json.dump('hello ' + name, f)\n" +
			"os.rename(new, os.environ['SPOTWORKER_RESULT'])\n",
	} {
		if err := os.WriteFile(filepath.Join(content, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	build := p.run(ctx, "build", "--pull=never", "--isolation=chroot", "--layers=false", "--tag", ownImage, content)
	if out, err := build.CombinedOutput(); err != nil {
		if bytes.Contains(bytes.ToLower(out), []byte("operation not permitted")) {
			need.Absent(t, need.Containers, fmt.Sprintf("podman build: %v: %s", err, out))
		}
		t.Fatalf("podman build: %v\n%s", err, out)
	}
	runJob(ctx, t, p)
}

const ownImage = "localhost/own:test"

// runJob puts a job, runs a container, and demands the job's result.
func runJob(ctx context.Context, t *testing.T, p *podman) {
	t.Helper()
	server := storage.New(storage.Options{})
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	c, err := client.Open(client.Options{ConnectionString: connection})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, client.Spec{ID: "a", Kind: "greet", Payload: "world"}); err != nil {
		t.Fatal(err)
	}
	worker := p.run(ctx, append(p.flags("own"), "--env", "AZURE_STORAGE_CONNECTION_STRING="+connection, "--env",
		"SPOTWORKER_METADATA_ENDPOINT=none", "--env", "SPOTWORKER_LISTEN=none", ownImage, "--exit-when-idle=5s")...)
	if out, err := worker.CombinedOutput(); err != nil {
		t.Fatalf("worker = %v, want exit code 0 when it is idle:\n%s", err, out)
	}
	if result, err := c.Wait(ctx, "a"); err != nil || string(result) != `"hello world"` {
		t.Errorf("result = %s, %v, want hello world", result, err)
	}
}

// importDebian makes a base image of a shell and Python from the Debian in .tools.
func importDebian(t *testing.T, p *podman, name string) {
	t.Helper()
	root := filepath.Join(repository.Root(t), ".tools", "debian")
	if _, err := os.Stat(filepath.Join(root, "usr", "bin", "python3")); err != nil {
		need.Missing(t, "Debian with Python in .tools/debian")
	}
	const pack = `cd "$1" && tar -c bin lib lib64 usr/bin/sh usr/bin/dash usr/bin/python3* usr/lib/python3* usr/lib64 \
		$(ls -d usr/lib/*-linux-gnu*/ld-* usr/lib/*-linux-gnu*/lib[cmz].so.* usr/lib/*-linux-gnu*/libexpat.so.* usr/lib/ld-* 2>/dev/null) >"$2"`
	archive := filepath.Join(t.TempDir(), "base.tar")
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", pack, "sh", root, archive).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := p.run(ctx, "import", archive, name).CombinedOutput(); err != nil {
		t.Fatalf("podman import: %v\n%s", err, out)
	}
}
