package outputs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/internal/storage/upload"
)

// transferMemory bounds the blocks of all files, in bytes.
const transferMemory = 64 << 20

// maxFolder is the longest folder of a claim.
const maxFolder = 40

// Store keeps the outputs of jobs in a container.
type Store struct {
	container *container.Client
	blobs     blobs.Container
	memory    *semaphore.Weighted
}

// NewStore returns the store of the outputs in container c.
func NewStore(c *container.Client) *Store {
	return &Store{container: c, blobs: blobs.In(c), memory: semaphore.NewWeighted(transferMemory)}
}

// Check reports whether the container can be reached.
func (s *Store) Check(ctx context.Context) error {
	if err := s.blobs.Check(ctx); err != nil {
		return fmt.Errorf("reach the container of outputs: %w", err)
	}
	return nil
}

// sending is one try to send a file.
type sending struct {
	id, folder, path string
	token            string // of the claim
	size             int64  // expected; -1 if it is not known
	content          io.Reader
}

// send writes a file's blob, which must not exist. A blob that this claim wrote before,
// under the same name, is the same upload whose answer was lost.
func (s *Store) send(ctx context.Context, u sending) (File, error) {
	memory := int64(upload.Parallel * upload.BlockSize)
	if upload.InOnePiece(u.size) {
		memory = max(u.size, 64<<10)
	}
	if err := s.memory.Acquire(ctx, memory); err != nil {
		return File{}, context.Cause(ctx)
	}
	defer s.memory.Release(memory)

	f := File{Path: u.path, Folder: u.folder, Type: upload.TypeOf(u.path), Executable: isExecutable(u.content)}
	sent, err := upload.Send(ctx, s.container.NewBlockBlobClient(f.Blob(u.id)), u.content, upload.Options{
		Size: u.size, Type: f.Type, Token: u.token,
	})
	if unreadable, ok := errors.AsType[*upload.ReadError](err); ok {
		if errors.As(err, new(*upload.TooLargeError)) {
			return File{}, &SourceError{Path: u.path, Err: fmt.Errorf("%w: %w", paths.ErrRefused, unreadable.Err)}
		}
		return File{}, &SourceError{Path: u.path, Err: unreadable.Err}
	}
	if err != nil {
		return File{}, fmt.Errorf("send output %s of job %s: %w", paths.Quote(u.path), u.id, err)
	}
	f.Size, f.SHA256, f.ETag = sent.Size, sent.SHA256, sent.ETag
	return f, nil
}

// isExecutable reports whether a content is that of an executable file.
func isExecutable(content io.Reader) bool {
	file, ok := content.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&0o100 != 0
}

// SourceError is the error of a file that cannot be read while it is sent.
type SourceError struct {
	Path string
	Err  error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("read output %s: %v", paths.Quote(e.Path), e.Err)
}

// Unwrap returns why.
func (e *SourceError) Unwrap() error { return e.Err }

// Blob returns the name of the blob of a job's file.
func (f File) Blob(id string) string { return jobid.Path(id) + "/" + f.Folder + "/" + f.Path }

func manifestName(id, hash string) string { return jobid.Path(id) + "/" + "manifest-" + hash + ".json" }

// writeManifest stores the list of a job's files, and returns what names it. No files need
// no list.
func (s *Store) writeManifest(ctx context.Context, id string, files []File) (Ref, error) {
	if len(files) == 0 {
		return Ref{}, nil
	}
	data, ref := encode(id, files)
	if err := s.blobs.Create(ctx, manifestName(id, ref.Hash), data, "application/json"); err != nil {
		return Ref{}, fmt.Errorf("write the list of outputs of job %s: %w", id, err)
	}
	return ref, nil
}

// Files returns the files of a list that a record names by its hash, which is empty for none.
// The error wraps [ErrManifest] if they cannot be known.
func (s *Store) Files(ctx context.Context, id, hash string) ([]File, error) {
	if hash == "" {
		return nil, nil
	}
	if _, err := hex.DecodeString(hash); err != nil || len(hash) != 2*sha256.Size {
		return nil, fmt.Errorf("outputs of job %s: %w: its record names %s, which is no hash", id, ErrManifest, paths.Quote(hash))
	}
	_, data, err := s.blobs.Get(ctx, manifestName(id, hash), maxManifest)
	switch {
	case blobs.IsMissing(err):
		return nil, fmt.Errorf("outputs of job %s: %w: there is none, so it was removed", id, ErrManifest)
	case errors.Is(err, blobs.ErrTooLarge):
		return nil, fmt.Errorf("outputs of job %s: %w: it has more than %d bytes", id, ErrManifest, maxManifest)
	case err != nil:
		return nil, fmt.Errorf("read the list of outputs of job %s: %w", id, err)
	}
	files, err := decode(id, hash, data)
	if err != nil {
		return nil, fmt.Errorf("outputs of job %s: %w", id, err)
	}
	return files, nil
}

// ErrGone means that a file's blob is missing, or is not the sent blob.
var ErrGone = errors.New("the blob of the output was removed or replaced")

// Open returns the content of a file from an offset. Its blob must be the sent blob; the
// caller checks the hash.
func (s *Store) Open(ctx context.Context, id string, f File, offset int64) (io.ReadCloser, error) {
	body, err := s.blobs.Open(ctx, f.Blob(id), f.ETag, offset)
	if isGone(err) {
		return nil, fmt.Errorf("output %s of job %s: %w: %s", paths.Quote(f.Path), id, ErrGone, paths.Quote(f.Blob(id)))
	}
	if err != nil {
		return nil, fmt.Errorf("read output %s of job %s: %w", paths.Quote(f.Path), id, err)
	}
	return body, nil
}

func isGone(err error) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && !bloberror.HasCode(err, bloberror.ContainerNotFound) &&
		(response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusPreconditionFailed)
}
