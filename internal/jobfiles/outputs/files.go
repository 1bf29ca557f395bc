package outputs

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// FilesPrefix is the start of the names of files that jobs bring: producers store them in the
// container of outputs, and workers may read them as inputs. No output has such a name.
const FilesPrefix = "files/"

// FilesPeriod is for how long a stored file is named by new jobs. After it the same content
// is stored again: so the age of a blob tells which jobs may name it, and no blob is changed.
const FilesPeriod = 7 * 24 * time.Hour

// FileName is the name of the blob of a file with that hash, for a job that is put at a time.
func FileName(hash string, at time.Time) string {
	return FilesPrefix + strconv.FormatInt(at.Unix()/int64(FilesPeriod/time.Second), 10) + "/" + hash
}

// ListFiles yields the files that jobs have brought.
func (s *Store) ListFiles(ctx context.Context) iter.Seq2[blobs.Blob, error] {
	return func(yield func(blobs.Blob, error) bool) {
		for b, err := range s.blobs.List(ctx, FilesPrefix, false) {
			if err != nil {
				err = fmt.Errorf("list files of jobs: %w", err)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// RemoveFile removes a file that a job has brought.
func (s *Store) RemoveFile(ctx context.Context, b blobs.Blob) (removed bool, err error) {
	if removed, err = s.blobs.Delete(ctx, b.Name, b.ETag); err != nil {
		return false, fmt.Errorf("remove %s: %w", b.Name, err)
	}
	return removed, nil
}
