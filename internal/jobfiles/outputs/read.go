package outputs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// OpenChecked returns the content of a file. Its last Read fails if the content is not
// the sent content.
func (s *Store) OpenChecked(ctx context.Context, id string, f File) (io.ReadCloser, error) {
	body, err := s.Open(ctx, id, f, 0)
	if err != nil {
		return nil, err
	}
	return &checked{body: body, file: f, hash: sha256.New()}, nil
}

// checked reads a file and checks its hash at the end.
type checked struct {
	body io.ReadCloser
	file File
	hash hash.Hash
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	_, _ = c.hash.Write(p[:n]) // never fails
	if errors.Is(err, io.EOF) && !sumIs(c.hash, c.file) {
		err = fmt.Errorf("output %s: %w", paths.Quote(c.file.Path), errDiffers)
	}
	return n, err
}

func (c *checked) Close() error { return c.body.Close() }
