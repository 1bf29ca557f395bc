package outputs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/upload"
	"github.com/spotworker/spotworker/internal/test/formats"
	"github.com/spotworker/spotworker/internal/test/need"
)

const (
	tokenA = "8a6e0804-2bd0-4672-b79d-d97027f9071a"
	tokenB = "11111111-2bd0-4672-b79d-d97027f9071a"
)

// testContainer returns a store in a container of an emulator of its own.
func testContainer(t *testing.T) (*Store, *storage.Server, *container.Client) {
	t.Helper()
	server := storage.New(storage.Options{})
	o := &azblob.ClientOptions{}
	o.Transport = server.Transport()
	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := client.ServiceClient().NewContainerClient("outputs")
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return NewStore(c), server, c
}

var roomy = Limits{Files: 1000, Bytes: 1 << 40}

func send(t *testing.T, s *Set, path, content string) {
	t.Helper()
	if _, err := s.Send(t.Context(), path, int64(len(content)), strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

// contents returns the files that a reader finds by a manifest.
func contents(t *testing.T, s *Store, id string, ref Ref) map[string]string {
	t.Helper()
	files, err := s.Files(t.Context(), id, ref.Hash)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		body, err := s.OpenChecked(t.Context(), id, f)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[f.Path] = string(data)
	}
	return all
}

// TestNothingIsOverwritten: a stale owner that sends after its successor, and files that
// are sent again, do not change the files of a manifest.
func TestNothingIsOverwritten(t *testing.T) {
	store, server, _ := testContainer(t)
	a := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, a, "x", "first")
	send(t, a, "d/y", "other")
	ref, err := a.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := store.Files(t.Context(), "j", ref.Hash)
	if err != nil {
		t.Fatal(err)
	}
	b := store.NewSet("j", 2, tokenB, roomy, ref.Hash, files)
	send(t, b, "x", "by b")
	send(t, a, "x", "late, by a")
	send(t, a, "d/y", "late, by a")
	refB, err := b.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"x": "first", "d/y": "other"}, contents(t, store, "j", ref)); diff != "" {
		t.Errorf("outputs of the first manifest (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"x": "by b", "d/y": "other"}, contents(t, store, "j", refB)); diff != "" {
		t.Errorf("outputs of the second manifest (-want +got)\n%s", diff)
	}
	if got, want := len(server.Blobs("outputs")), 5+2; got != want {
		t.Errorf("blobs = %d, want %d: five files and two manifests", got, want)
	}
	if _, err := a.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ref2, err := b.Record(t.Context()); err != nil || ref2 != refB {
		t.Errorf("manifest of an unchanged set = %v, %v, want %v", ref2, err, refB)
	}
}

// TestLostAnswerIsSuccess: the SDK repeats an upload whose answer was lost, and meets its
// own blob.
func TestLostAnswerIsSuccess(t *testing.T) {
	for _, size := range []int{5, upload.BlockSize + 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			store, server, _ := testContainer(t)
			var once sync.Once
			server.OnCall(func(c storage.Call) (f storage.Fault) {
				if c.Operation == storage.OpPutBlob || c.Operation == storage.OpPutBlockList {
					once.Do(func() { f.DropReply = true })
				}
				return f
			})
			s := store.NewSet("j", 1, tokenA, roomy, "", nil)
			content := strings.Repeat("a", size)
			send(t, s, "x", content)
			ref, err := s.Record(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(t, store, "j", ref)["x"]; got != content {
				t.Errorf("content has %d bytes, want %d", len(got), len(content))
			}
		})
	}
}

// TestForeignBlobIsNotOurs: a blob of that name that another claim wrote is never taken
// for the file.
func TestForeignBlobIsNotOurs(t *testing.T) {
	store, _, c := testContainer(t)
	name := File{Path: "x", Folder: "1-" + tokenA[:8]}.Blob("j")
	if _, err := c.NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	if _, err := s.Send(t.Context(), "x", 5, strings.NewReader("world")); !errors.Is(err, upload.ErrTaken) {
		t.Errorf("Send over a foreign blob = %v, want ErrTaken", err)
	}
	send(t, s, "x", "world") // the next try has another name
	ref, err := s.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, store, "j", ref)["x"]; got != "world" {
		t.Errorf("content = %q, want world", got)
	}
}

// TestLargeFileInBlocks: a file of unknown length is sent in blocks, and its hash is the
// hash of the stored bytes.
func TestLargeFileInBlocks(t *testing.T) {
	store, server, _ := testContainer(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), (2*upload.BlockSize+100)/16)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	f, err := s.Send(t.Context(), "big.bin", -1, io.MultiReader(bytes.NewReader(data))) // hides its length
	if err != nil {
		t.Fatal(err)
	}
	if f.Size != int64(len(data)) || server.Counts()[storage.OpPutBlock] != 3 {
		t.Errorf("size = %d in %d blocks, want %d in 3", f.Size, server.Counts()[storage.OpPutBlock], len(data))
	}
	ref, err := s.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, store, "j", ref)["big.bin"]; got != string(data) {
		t.Error("content differs")
	}
}

func TestRefusals(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, Limits{Files: 3, Bytes: 20}, "", nil)
	send(t, s, "a", "12345")
	send(t, s, "d/b", "12345")
	for name, row := range map[string]struct {
		path, content, want string
	}{
		"a folder of a file":    {"a/x", "1", `another output is named "a"`},
		"a file of a folder":    {"d", "1", "there are outputs in a folder of that name"},
		"too large":             {"e", strings.Repeat("1", 11), "more than 20 bytes"},
		"the replaced one fits": {"a", strings.Repeat("1", 15), ""},
		"escapes":               {"../x", "1", "leads out"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store.NewSet("j", 2, tokenB, Limits{Files: 3, Bytes: 20}, "", s.Files())
			_, err := s.Send(t.Context(), row.path, int64(len(row.content)), strings.NewReader(row.content))
			if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, paths.ErrRefused) || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("Send(%q) = %v, want %q", row.path, err, row.want)
			}
		})
	}
	send(t, s, "c", "")
	if _, err := s.Send(t.Context(), "z", 0, strings.NewReader("")); !errors.Is(err, paths.ErrRefused) ||
		!strings.Contains(err.Error(), "more than 3 output files") {
		t.Errorf("a fourth file = %v, want a refusal", err)
	}
	if _, err := s.Send(t.Context(), "c", -1, strings.NewReader(strings.Repeat("1", 11))); !errors.Is(err, paths.ErrRefused) {
		t.Errorf("a content that turns out to be too large = %v, want a refusal", err)
	}
}

// TestGoldenManifest: the form in storage does not change.
func TestGoldenManifest(t *testing.T) {
	data, err := os.ReadFile("testdata/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	files := []File{
		{Path: "frames/0001.png", Size: 1048576, SHA256: strings.Repeat("0123456789abcdef", 4), Folder: "1-8a6e0804", ETag: `"0x8DC"`,
			Type: "image/png"},
		{Path: "<notes>.txt", Size: 0, SHA256: strings.Repeat("fedcba9876543210", 4), Folder: "3-8a6e0804-2", ETag: `"0x8DD"`,
			Type: "text/plain; charset=utf-8"},
	}
	encoded, ref := encode("report-7", slices.Clone(files))
	if diff := cmp.Diff(string(data), string(encoded)); diff != "" {
		t.Errorf("manifest (-golden +got)\n%s", diff)
	}
	got, err := decode("report-7", ref.Hash, data)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	if diff := cmp.Diff(files, got); diff != "" || ref.Files != 2 || ref.Bytes != 1048576 {
		t.Errorf("manifest read, %+v (-want +got)\n%s", ref, diff)
	}
}

// TestManifestsAreChecked: a list that the record does not name, or that leads elsewhere, is
// not read.
func TestManifestsAreChecked(t *testing.T) {
	good := File{Path: "a", SHA256: strings.Repeat("0", 64), Folder: "1-8a6e0804"}
	for name, change := range map[string]func(*Manifest){
		"another job":   func(m *Manifest) { m.Job = "other" },
		"a new version": func(m *Manifest) { m.V = 2 },
		"a path out":    func(m *Manifest) { m.Files[0].Path = "../a" },
		"a folder out":  func(m *Manifest) { m.Files[0].Folder = "../../x" },
		"no folder":     func(m *Manifest) { m.Files[0].Folder = "" },
		"twice":         func(m *Manifest) { m.Files = append(m.Files, m.Files[0]) },
		"no size":       func(m *Manifest) { m.Files[0].Size = -1 },
		"no hash":       func(m *Manifest) { m.Files[0].SHA256 = "" },
		"a long folder": func(m *Manifest) { m.Files[0].Folder = strings.Repeat("1", maxFolder+1) },
	} {
		m := Manifest{V: Version, Job: "j", Files: []File{good}}
		change(&m)
		data, ref := encode(m.Job, m.Files)
		if m.V != Version {
			data = bytes.Replace(data, []byte(`"v":1`), []byte(`"v":2`), 1)
			ref.Hash = sumOf(data)
		}
		if _, err := decode("j", ref.Hash, data); !errors.Is(err, ErrManifest) {
			t.Errorf("decode of a list with %s = %v, want ErrManifest", name, err)
		}
	}
	longest := Manifest{V: Version, Job: "j", Files: []File{good}}
	longest.Files[0].Folder = strings.Repeat("1", maxFolder)
	data, ref := encode("j", longest.Files)
	if files, err := decode("j", ref.Hash, data); err != nil || len(files) != 1 {
		t.Errorf("a list with the longest folder = %v, %v, want its file", files, err)
	}
	if _, err := decode("j", strings.Repeat("0", 64), data); !errors.Is(err, ErrManifest) {
		t.Errorf("decode of another list than the named one = %v, want ErrManifest", err)
	}
	for _, text := range []string{"no JSON", `{"v":1,"job":"j","files":"of another type"}`} {
		if files, err := decode("j", sumOf([]byte(text)), []byte(text)); !errors.Is(err, ErrManifest) {
			t.Errorf("decode of %s = %v, %v, want ErrManifest", text, files, err)
		}
	}
	store, server, _ := testContainer(t)
	for _, hash := range []string{"../../other", strings.Repeat("0", 64), "abcd", strings.Repeat("z", 64)} {
		if _, err := store.Files(t.Context(), "j", hash); !errors.Is(err, ErrManifest) {
			t.Errorf("Files(%q) = %v, want ErrManifest", hash, err)
		}
	}
	if n := server.Counts()[storage.OpGetBlob]; n != 1 {
		t.Errorf("reads for four hashes = %d, want 1: the others are none", n)
	}
}

func TestFormatIsDocumented(t *testing.T) {
	for heading, of := range map[string]any{"Fields of a list of outputs": Manifest{}, "Fields of an output": File{}} {
		var inCode []string
		for field := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			inCode = append(inCode, name)
		}
		slices.Sort(inCode)
		if diff := cmp.Diff(formats.Documented(t, heading), inCode); diff != "" {
			t.Errorf("%s (-documented +in code)\n%s", heading, diff)
		}
	}
}

// TestDownload: files are written whole, checked, and not fetched again; different files
// are replaced, and a download that was interrupted continues.
func TestDownload(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "a.txt", "content of a")
	send(t, s, "d/e/b.txt", "content of b")
	send(t, s, "empty", "")
	dir := filepath.Join(t.TempDir(), "to")
	download := func() (fetched int64) {
		t.Helper()
		var mu sync.Mutex
		err := store.Download(t.Context(), "j", s.Files(), dir, func(_ File, n int64) {
			mu.Lock()
			defer mu.Unlock()
			fetched += n
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range s.Files() {
			data, err := os.ReadFile(filepath.Join(dir, f.Path))
			if err != nil {
				t.Fatal(err)
			}
			got[f.Path] = string(data)
		}
		if diff := cmp.Diff(map[string]string{"a.txt": "content of a", "d/e/b.txt": "content of b", "empty": ""}, got); diff != "" {
			t.Errorf("downloaded (-want +got)\n%s", diff)
		}
		return fetched
	}
	if n := download(); n != 24 {
		t.Errorf("fetched = %d bytes, want 24", n)
	}
	if n := download(); n != 0 {
		t.Errorf("fetched again = %d bytes, want none", n)
	}
	b, _ := s.Get("d/e/b.txt")
	part := filepath.Join(dir, "d", "e", partName(b))
	for _, row := range []struct {
		what, part string
		want       int64
	}{
		{"a part", "content", 5}, {"a damaged part", "CONTENT", 5 + 12}, {"a part that is too long", strings.Repeat("x", 40), 12},
		{"a whole part", "content of b", 0},
	} {
		if err := errors.Join(os.Remove(filepath.Join(dir, "d", "e", "b.txt")), os.WriteFile(part, []byte(row.part), 0o600)); err != nil {
			t.Fatal(err)
		}
		if n := download(); n != row.want {
			t.Errorf("fetched with %s = %d bytes, want %d", row.what, n, row.want)
		}
	}
	for _, other := range []string{"something else", "CONTENT OF A"} {
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := download(); n != 12 {
			t.Errorf("fetched in place of another file of %d bytes = %d bytes, want 12", len(other), n)
		}
	}
}

// TestDownloadStaysInItsFolder: links in the folder lead nothing out of it.
func TestDownloadStaysInItsFolder(t *testing.T) {
	store, _, _ := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "d/x", "content")
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "d")); err != nil {
		need.Missing(t, "symbolic links: "+err.Error())
	}
	if err := store.Download(t.Context(), "j", s.Files(), dir, nil); err == nil {
		t.Error("download through a link that leads out = nil, want an error")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("files outside of the folder = %v, want none", entries)
	}
}

func TestCheckPaths(t *testing.T) {
	for _, row := range []struct {
		paths   []string
		ignores bool
		want    string
	}{
		{[]string{"a", "A"}, false, ""},
		{[]string{"a", "A"}, true, "same name"},
		{[]string{"d/x", "D/y"}, true, "same name"},
		{[]string{"a", "b/a", "c/a"}, true, ""},
		{[]string{"d/x", "d/y"}, true, ""},
		{[]string{"../x"}, false, "does not allow such a name"},
		{[]string{"ä", "Ä"}, true, "same name"},
	} {
		var files []File
		for _, p := range row.paths {
			files = append(files, File{Path: p})
		}
		err := checkPaths(files, row.ignores)
		if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("checkPaths(%q, %v) = %v, want %q", row.paths, row.ignores, err, row.want)
		}
	}
}

// TestGoneOutputs: an output that was removed or replaced is not mistaken for the sent
// output.
func TestGoneOutputs(t *testing.T) {
	store, _, c := testContainer(t)
	s := store.NewSet("j", 1, tokenA, roomy, "", nil)
	send(t, s, "x", "content")
	f, _ := s.Get("x")
	if _, err := c.NewBlockBlobClient(f.Blob("j")).UploadBuffer(t.Context(), []byte("CONTENT"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenChecked(t.Context(), "j", f); !errors.Is(err, ErrGone) {
		t.Errorf("open of a replaced output = %v, want ErrGone", err)
	}
	if _, err := c.NewBlobClient(f.Blob("j")).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Download(context.WithoutCancel(t.Context()), "j", s.Files(), t.TempDir(), nil); !errors.Is(err, ErrGone) {
		t.Errorf("download of a removed output = %v, want ErrGone", err)
	}
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
