package vmpackage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// image is an image as a registry reads it.
type image struct {
	t     *testing.T
	blobs map[string][]byte
}

// readImage reads an OCI archive.
func readImage(t *testing.T, path string) (i image, index manifest) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i = image{t, map[string][]byte{}}
	for name, e := range readTar(t, data) {
		i.blobs[name] = e.data
	}
	if got, want := string(i.blobs["oci-layout"]), `{"imageLayoutVersion":"1.0.0"}`; got != want {
		t.Errorf("oci-layout = %q, want %q", got, want)
	}
	if err := json.Unmarshal(i.blobs["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	return i, index
}

// blob returns a blob after a check of its size and digest.
func (i image) blob(d descriptor) []byte {
	i.t.Helper()
	data := i.blobs["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != d.Digest || len(data) != d.Size {
		i.t.Fatalf("blob %+v has the digest %s and %d bytes", d, got, len(data))
	}
	return data
}

func (i image) decode(d descriptor, to any) {
	i.t.Helper()
	if err := json.Unmarshal(i.blob(d), to); err != nil {
		i.t.Fatal(err)
	}
}

type tarEntry struct {
	header *tar.Header
	data   []byte
}

func readTar(t *testing.T, data []byte) map[string]tarEntry {
	t.Helper()
	entries, archive := map[string]tarEntry{}, tar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		entries[header.Name] = tarEntry{header, content}
	}
}

// TestImage reads the image as a container runtime does: for both architectures a static
// worker, certificates and a /tmp, as a user without a name on the host.
func TestImage(t *testing.T) {
	proof.Only(t, "it compiles for two processors; TestImageIsReproducible reads one image")
	c := tiny(t)
	c.Handlers, c.Architectures, c.Version = "", []string{"amd64", "arm64"}, "1.2.3+local"
	path, err := MakeImage(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	i, index := readImage(t, path)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "spotworker:1.2.3_local" {
		t.Fatalf("index = %+v, want one image with its tag", index)
	}
	var all manifest
	i.decode(index.Manifests[0], &all)
	if len(all.Manifests) != 2 {
		t.Fatalf("%d manifests, want 2", len(all.Manifests))
	}
	for n, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		if d := all.Manifests[n]; d.Platform["os"] != linux || d.Platform["architecture"] != c.Architectures[n] {
			t.Errorf("manifest %d is for %v, want %s", n, d.Platform, c.Architectures[n])
		}
		i.checkArchitecture(all.Manifests[n], machine, c.Architectures[n])
		bill, err := os.ReadFile(filepath.Join(c.Out, ImageBillName(c.Architectures[n])))
		if err != nil || !json.Valid(bill) || !bytes.Contains(bill, []byte("ca-certificates.crt")) ||
			!bytes.Contains(bill, []byte(`"`+c.Architectures[n]+`"`)) {
			t.Errorf("bill of materials for %s = %.100s, %v, want the files of the image", c.Architectures[n], bill, err)
		}
	}
}

func (i image) checkArchitecture(d descriptor, machine elf.Machine, architecture string) {
	t := i.t
	t.Helper()
	var one manifest
	i.decode(d, &one)
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	i.decode(*one.Config, &config)
	if config.Architecture != architecture || config.OS != linux || config.Config.User != "65532:65532" ||
		len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/worker" {
		t.Errorf("configuration = %+v, want %s and user 65532", config, architecture)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(i.blob(one.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(zipped)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); len(one.Layers) != 1 || config.RootFS.DiffIDs[0] != want {
		t.Errorf("diff_ids = %v of %d layers, want %s", config.RootFS.DiffIDs, len(one.Layers), want)
	}
	checkLayer(t, readTar(t, layer), machine)
}

func checkLayer(t *testing.T, files map[string]tarEntry, machine elf.Machine) {
	t.Helper()
	modes := map[string]int64{
		"etc/": 0o755, "etc/ssl/": 0o755, "etc/ssl/certs/": 0o755, "tmp/": 0o1777, "worker": 0o755,
		"etc/group": 0o644, "etc/passwd": 0o644, "etc/ssl/certs/ca-certificates.crt": 0o644, licensesName: 0o644,
	}
	for name, f := range files {
		if f.header.Mode != modes[name] || f.header.Uid != 0 || f.header.Gid != 0 || f.header.ModTime.Unix() != commitTime.Unix() {
			t.Errorf("%s has the mode %o, user %d and time %s, want %o, 0 and the commit's", name, f.header.Mode, f.header.Uid,
				f.header.ModTime, modes[name])
		}
	}
	if len(files) != len(modes) {
		t.Errorf("layer has %d files and folders, want %d", len(files), len(modes))
	}
	program, err := elf.NewFile(bytes.NewReader(files["worker"].data))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := program.ImportedLibraries(); program.Machine != machine || err != nil || len(libraries) > 0 {
		t.Errorf("worker is for %s and needs %v, %v, want %s and no library", program.Machine, libraries, err, machine)
	}
	const fewest = 50
	pool, text := x509.NewCertPool(), files["etc/ssl/certs/ca-certificates.crt"].data
	if !pool.AppendCertsFromPEM(text) || bytes.Count(text, []byte("BEGIN")) < fewest {
		t.Errorf("%d certificates, want at least %d", bytes.Count(text, []byte("BEGIN")), fewest)
	}
}

// TestImageIsReproducible: two builds in two folders agree byte by byte.
func TestImageIsReproducible(t *testing.T) {
	var first []byte
	for range 2 {
		c := tiny(t)
		c.Handlers = ""
		path, err := MakeImage(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, data) {
			t.Errorf("two builds of %s differ", filepath.Base(path))
		}
		first = data
	}
}

func TestImageRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"programs": func(*Config) {},
		"Windows":  func(c *Config) { c.Handlers, c.Architectures = "", []string{"windows-amd64"} },
		"version":  func(c *Config) { c.Handlers, c.Version = "", "a/b" },
	} {
		c := tiny(t)
		change(&c)
		if path, err := MakeImage(t.Context(), c); err == nil || !strings.Contains(err.Error(), name) && !strings.Contains(err.Error(), "Linux") {
			t.Errorf("%s: MakeImage = %s, %v, want an error about it", name, path, err)
		}
		if left, err := os.ReadDir(c.Out); err != nil || len(left) > 0 {
			t.Errorf("%s: files = %v, %v, want none", name, left, err)
		}
	}
}
