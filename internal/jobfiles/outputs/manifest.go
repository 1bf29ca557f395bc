package outputs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// Version is the version of the manifest that this package writes and reads.
const Version = 1

// maxManifest is the largest manifest, in bytes: 100,000 files whose paths have some 130
// bytes. [Set.Send] refuses files that would exceed it.
const maxManifest = 64 << 20

// ErrManifest means that the manifest which a record names is missing, damaged, or of a
// newer version.
var ErrManifest = errors.New("the list of the job's outputs cannot be read")

// File is a file that was sent.
type File struct {
	Path string `json:"path"` // below the job's output folder, with slashes
	Size int64  `json:"size"`

	// SHA256 is the hash of the content, in lower-case hex.
	SHA256 string `json:"sha256"`

	// Folder is the folder of the claim that sent the file: its blob is <hhh>/<job
	// id>/<Folder>/<Path>.
	Folder string `json:"folder"`

	// ETag is the blob's, quotes included. A blob with another ETag is not the file.
	ETag azcore.ETag `json:"etag"`

	// Type is the content type of the blob.
	Type string `json:"type"`

	// Executable makes the file executable where it is downloaded.
	Executable bool `json:"executable,omitempty"`
}

// Ref names a manifest, as a job's record does. The zero value stands for no files.
type Ref struct {
	Hash  string // SHA-256 of the manifest, in lower-case hex
	Files int
	Bytes int64 // of all files
}

// Manifest lists the files of a job in the order of their paths.
type Manifest struct {
	V     int    `json:"v"`
	Job   string `json:"job"`
	Files []File `json:"files"`
}

// encode returns the manifest's stored form, and what names it.
func encode(id string, files []File) ([]byte, Ref) {
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	m := Manifest{V: Version, Job: id, Files: files}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(m) // never fails: it has texts and numbers alone
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), refOf(hex.EncodeToString(sum[:]), files)
}

// refOf names the list with that hash.
func refOf(hash string, files []File) Ref {
	ref := Ref{Hash: hash, Files: len(files)}
	for _, f := range files {
		ref.Bytes += f.Size
	}
	return ref
}

// decode reads a manifest that a record names. Its names lead nowhere else: they come
// from a blob that others may have written.
func decode(id, hash string, data []byte) ([]File, error) {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != hash {
		return nil, fmt.Errorf("%w: it is not the one that the job's record names", ErrManifest)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.V != Version || m.Job != id {
		return nil, fmt.Errorf("%w: it has version %d, of job %s; this program reads version %d", ErrManifest, m.V, paths.Quote(m.Job), Version)
	}
	seen := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		switch err := paths.Validate(f.Path); {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrManifest, err)
		case seen[f.Path] || f.Size < 0 || !isFolder(f.Folder) || len(f.SHA256) != 2*sha256.Size:
			return nil, fmt.Errorf("%w: its entry for %s is malformed", ErrManifest, paths.Quote(f.Path))
		}
		seen[f.Path] = true
	}
	return m.Files, nil
}

// isFolder reports whether a text can be the folder of a claim.
func isFolder(s string) bool {
	return s != "" && len(s) <= maxFolder && strings.Trim(s, "0123456789abcdef-") == ""
}
