package outputs

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/internal/test/need"
)

// refuse makes calls of an operation fail for want of a role.
func refuse(server *storage.Server, operation string) {
	server.OnCall(func(c storage.Call) (f storage.Fault) {
		if c.Operation == operation {
			f.Refuse = &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}
		}
		return f
	})
}

// TestWithoutAccess: a call that is refused is an error of its own, and no sign that an output or a
// list is gone.
func TestWithoutAccess(t *testing.T) {
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "x", "content")
	ref, err := s.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, _ := s.Get("x")
	for name, row := range map[string]struct {
		operation string
		do        func() error
	}{
		"Check": {storage.OpGetContainerProperties, func() error { return store.Check(t.Context()) }},
		"Files": {storage.OpGetBlob, func() error { _, err := store.Files(t.Context(), "j", ref.Hash); return err }},
		"Named": {storage.OpGetBlob, func() error { _, err := store.Named(t.Context(), "j", ref.Hash); return err }},
		"Open":  {storage.OpGetBlob, func() error { _, err := store.Open(t.Context(), "j", f, 0); return err }},
		"Set.Open": {storage.OpGetBlob, func() error {
			_, err := s.Open(t.Context(), "x")
			return err
		}},
		"Download": {storage.OpGetBlob, func() error { return store.Download(t.Context(), "j", s.Files(), t.TempDir(), nil) }},
		"Send": {storage.OpPutBlob, func() error {
			_, err := s.Send(t.Context(), "x", 1, strings.NewReader("1"))
			return err
		}},
		"List": {storage.OpListBlobs, func() (err error) {
			for _, err = range store.List(t.Context(), "j") {
			}
			return err
		}},
		"Remove": {storage.OpDeleteBlob, func() error {
			removed, err := store.Remove(t.Context(), Stored{Blob: blobs.Blob{Name: f.Blob("j"), ETag: f.ETag}, Job: "j"})
			if removed {
				t.Error("Remove reports a removal that was refused")
			}
			return err
		}},
	} {
		server.OnCall(nil)
		if name != "Remove" {
			if err := row.do(); err != nil {
				t.Errorf("%s = %v, want no error", name, err)
			}
		}
		refuse(server, row.operation)
		if err := row.do(); err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrManifest) ||
			!strings.Contains(err.Error(), "AuthorizationPermissionMismatch") {
			t.Errorf("%s without access = %v, want the refusal", name, err)
		}
	}
	server.OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: 404, Code: "ContainerNotFound"}}
	})
	if _, err := store.Open(t.Context(), "j", f, 0); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Open without the container = %v, want no sign that this output is gone", err)
	}
}

// TestListedNames: a listing yields blobs with names of outputs, of one job or of all.
func TestListedNames(t *testing.T) {
	store, _, c := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "d/x", "content")
	ref, err := s.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, store.NewSet("k", 1, tokenB, roomy, "", nil), "y", "1")
	for _, foreign := range []string{"top", "000/j/1-8a6e0804/x", jobid.Path("j"), "abc/.bad/1-1/x", jobid.Path(".bad") + "/1-1/x"} {
		if _, err := c.NewBlockBlobClient(foreign).UploadBuffer(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	named, err := store.Named(t.Context(), "j", ref.Hash)
	if err != nil {
		t.Fatal(err)
	}
	own := []string{jobid.Path("j") + "/1-8a6e0804/d/x", manifestName("j", ref.Hash)}
	if got := slices.Sorted(maps.Keys(named)); !cmp.Equal(got, own) {
		t.Errorf("Named = %v, want %v", got, own)
	}
	for id, want := range map[string][]string{"j": own, "": append(slices.Clone(own), jobid.Path("k")+"/1-11111111/y")} {
		var got []string
		for b, err := range store.List(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, b.Name); b.Name == own[0] && (b.Job != "j" || b.Size != int64(len("content"))) {
				t.Errorf("listed as %+v, want job j and 7 bytes", b)
			}
		}
		if slices.Sort(got); !cmp.Equal(got, want) {
			t.Errorf("List(%q) = %v, want %v", id, got, want)
		}
	}
	for _, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		break // ends without a panic
	}
}

// TestDownloadMeets: what is in the folder already never becomes a wrong output, and nothing else
// is written.
func TestDownloadMeets(t *testing.T) {
	need.NotOn(t, "windows", "needs symbolic links and names with a colon")
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "a:b", "content")
	f, _ := s.Get("a:b")
	wrong := f
	wrong.SHA256 = strings.Repeat("0", 64)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("CONTENT"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		file    File
		prepare func(path string) error
		during  func(path string) error // during the download
		want    error                   // nil for none
		fails   bool
	}{
		"nothing":  {file: f},
		"a folder": {file: f, prepare: func(path string) error { return os.Mkdir(path, 0o700) }, want: ErrUnsafe},
		"a link":   {file: f, prepare: func(path string) error { return os.Symlink(outside, path) }},
		"a link to the content": {file: f, prepare: func(path string) error {
			other := "another" // the length of the name of the target is the size of the file
			return errors.Join(os.WriteFile(filepath.Join(filepath.Dir(path), other), []byte("content"), 0o600), os.Symlink(other, path))
		}},
		"other content in storage": {file: wrong, want: ErrGone},
		"a folder made meanwhile": {file: f, fails: true, during: func(path string) error {
			return os.MkdirAll(filepath.Join(path, "full"), 0o700)
		}},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a:b")
		if row.prepare != nil {
			if err := row.prepare(path); err != nil {
				t.Fatal(err)
			}
		}
		server.OnCall(func(storage.Call) storage.Fault {
			if row.during != nil {
				if err := row.during(path); err != nil {
					t.Error(err)
				}
			}
			return storage.Fault{}
		})
		err := store.Download(t.Context(), "j", []File{row.file}, dir, nil)
		if row.fails = row.fails || row.want != nil; row.fails != (err != nil) || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want failure %t, %v", name, err, row.fails, row.want)
		}
		if got, _ := os.ReadFile(path); (string(got) == "content") == row.fails {
			t.Errorf("%s: the file has %q", name, got)
		}
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			t.Errorf("%s: the output is a link", name)
		}
	}
	if kept, err := os.ReadFile(outside); err != nil || string(kept) != "CONTENT" {
		t.Errorf("the target of the link has %q, %v, want it as it was", kept, err)
	}
}

// TestDownloadCannotWrite: a file where a folder has to be, and the reverse, is an error.
func TestDownloadCannotWrite(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "d/x", "content")
	f, _ := s.Get("d/x")
	for name, prepare := range map[string]func(dir string) error{
		"the folder": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a folder in it": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "d"), nil, 0o600))
		},
		"the part": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "d", partName(f)), 0o700)
		},
	} {
		dir := filepath.Join(t.TempDir(), "to")
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		if err := store.Download(t.Context(), "j", s.Files(), dir, nil); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("Download where %s cannot be made = %v, want an error of this machine", name, err)
		}
	}
}

// TestAnotherList: a list with other content than the named list is not read.
func TestAnotherList(t *testing.T) {
	store, _, c := testContainer(t)
	hash := strings.Repeat("0", 64)
	if _, err := c.NewBlockBlobClient(manifestName("j", hash)).UploadBuffer(t.Context(), []byte("{}"), nil); err != nil {
		t.Fatal(err)
	}
	if files, err := store.Files(t.Context(), "j", hash); !errors.Is(err, ErrManifest) {
		t.Errorf("Files = %v, %v, want ErrManifest", files, err)
	}
}

// TestDownloadIsCutOff: a body that ends early is no sign that the output is gone, and its part
// stays for the next download.
func TestDownloadIsCutOff(t *testing.T) {
	store, server, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "x", "content")
	f, _ := s.Get("x")
	dir := t.TempDir()
	server.OnCall(func(c storage.Call) storage.Fault { return storage.Fault{CutBody: c.Operation == storage.OpGetBlob} })
	if err := store.Download(t.Context(), "j", s.Files(), dir, nil); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Download = %v, want an error that a retry may cure", err)
	}
	if _, err := os.Stat(filepath.Join(dir, partName(f))); err != nil {
		t.Errorf("the part is gone: %v", err)
	}
	ref, err := s.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Files(t.Context(), "j", ref.Hash); err == nil || errors.Is(err, ErrManifest) {
		t.Errorf("Files = %v, want an error that a retry may cure", err)
	}
}

// TestSourceErrorHasItsCause: a caller finds why a file could not be read.
func TestSourceErrorHasItsCause(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	_, err := s.Send(t.Context(), "x", -1, iotest.ErrReader(os.ErrPermission))
	if source, ok := errors.AsType[*SourceError](err); !ok || source.Path != "x" || !errors.Is(err, os.ErrPermission) ||
		errors.Is(err, paths.ErrRefused) {
		t.Errorf("Send of an unreadable file = %v, want a SourceError with its cause, and no refusal", err)
	}
}
