package client

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/program/command"
)

// TestAttach: what is stored already is not sent again, under whatever name, and the job names it
// once.
func TestAttach(t *testing.T) {
	b, dir := setup(t), t.TempDir()
	script := filepath.Join(dir, "run.sh")
	if err := errors.Join(os.WriteFile(script, []byte("echo"), 0o700), os.Mkdir(filepath.Join(dir, "data"), 0o700)); err != nil {
		t.Fatal(err)
	}
	spec := Command("./run.sh", "a b")
	attach := func(path, name string) error { return b.Attach(t.Context(), &spec, path, name) }
	if err := errors.Join(attach(script, ""), attach(filepath.Join(dir, "data"), "in/data"), attach(script, "again")); err != nil {
		t.Fatal(err)
	}
	sent := b.server.Counts()["PutBlob"]
	if err := attach(dir, "."); err != nil || b.server.Counts()["PutBlob"] != sent+1 || sent != 2 {
		t.Errorf("Attach = %v; %d blobs sent, then %d, want 2 and one more", err, sent, b.server.Counts()["PutBlob"])
	}
	got := spec.Payload.(command.Command)
	want := command.Command{Argv: []string{"./run.sh", "a b"}, Files: []command.File{
		{Input: got.Files[0].Input, Path: "run.sh", Executable: true}, {Input: got.Files[1].Input, Path: "in/data", Folder: true},
		{Input: got.Files[0].Input, Path: "again", Executable: true}, {Input: got.Files[3].Input, Path: ".", Folder: true},
	}}
	if diff := cmp.Diff(want, got); diff != "" || len(spec.Inputs) != 3 || !strings.HasSuffix(spec.Inputs[0].Blob, "/"+got.Files[0].Input) {
		t.Errorf("command (-want +got)\n%s\nwith inputs %+v", diff, spec.Inputs)
	}
	if err := spec.Validate(); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"": attach(filepath.Join(dir, "none"), ""), "../up": attach(script, "../up"),
		"again": attach(script, "again")} {
		if err == nil || len(spec.Inputs) != 3 {
			t.Errorf("Attach as %q = %v with inputs %v, want an error", name, err, spec.Inputs)
		}
	}
	other := Spec{Kind: "k", Payload: 1}
	if err := b.Attach(t.Context(), &other, script, ""); err == nil {
		t.Error("a file was attached to a job that is no command")
	}
}

// TestAttachChanges: a file that changes while it is sent is not stored under the hash of what it was.
func TestAttachChanges(t *testing.T) {
	b, opened := setup(t), 0
	changing := content{size: 3, open: func() (io.ReadCloser, error) {
		opened++
		return io.NopCloser(strings.NewReader([]string{"old", "new"}[opened-1])), nil
	}}
	sum, err := changing.digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	to := inputOf(b.stores.Names.Outputs, sum)
	if err := b.store(t.Context(), to, changing, sum); !errors.Is(err, errAltered) || len(b.server.Blobs(to.Container)) != 0 {
		t.Errorf("store = %v, %d blobs, want none", err, len(b.server.Blobs(to.Container)))
	}
}
