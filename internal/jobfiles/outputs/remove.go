package outputs

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// Stored is a blob in the container of outputs, as it was listed.
type Stored struct {
	blobs.Blob
	Job string // its job's id
}

// List yields all blobs with names of outputs and manifests, in the order of their names:
// a job's blobs follow each other. With an id it yields only that job's. It costs one
// call for 5,000 blobs.
func (s *Store) List(ctx context.Context, id string) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		prefix := ""
		if id != "" {
			prefix = jobid.Path(id) + "/"
		}
		for b, err := range s.blobs.List(ctx, prefix, false) {
			if err != nil {
				yield(Stored{}, fmt.Errorf("list outputs: %w", err))
				return
			}
			if stored, ok := storedOf(b); ok && !yield(stored, nil) {
				return
			}
		}
	}
}

func storedOf(b blobs.Blob) (s Stored, ok bool) {
	_, rest, _ := strings.Cut(b.Name, "/")
	id, name, _ := strings.Cut(rest, "/")
	return Stored{b, id}, jobid.Validate(id) == nil && b.Name == jobid.Path(id)+"/"+name
}

// Remove removes a blob if it is as it was listed. It is no error if it is gone.
func (s *Store) Remove(ctx context.Context, b Stored) (removed bool, err error) {
	if removed, err = s.blobs.Delete(ctx, b.Name, b.ETag); err != nil {
		return false, fmt.Errorf("remove an output of job %s: %w", b.Job, err)
	}
	return removed, nil
}

// Named returns the names of the blobs of a list and of its files.
func (s *Store) Named(ctx context.Context, id, hash string) (map[string]bool, error) {
	files, err := s.Files(ctx, id, hash)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{manifestName(id, hash): true}
	for _, f := range files {
		named[f.Blob(id)] = true
	}
	return named, nil
}
