package outputs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// parallelDownloads is how many files are downloaded at once.
const parallelDownloads = 16

// ErrUnsafe means that a file cannot be written here under its path.
var ErrUnsafe = errors.New("it cannot be written here")

// Download writes files of a job into a folder, which it makes. A file that is there
// already, with the same content, is left as it is; any other is replaced. A file is
// written under another name first, from which a later download continues, and checked by
// its hash. Nothing is written outside of the folder, by any links in it. done is called
// after each file, from many goroutines.
func (s *Store) Download(ctx context.Context, id string, files []File, dir string, done func(f File, fetched int64)) error {
	if err := checkPaths(files, runtime.GOOS == "windows" || runtime.GOOS == "darwin"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelDownloads)
	for _, f := range files {
		group.Go(func() error {
			fetched, err := s.download(ctx, id, f, root)
			if err != nil {
				return fmt.Errorf("output %s: %w", paths.Quote(f.Path), err)
			}
			if done != nil {
				done(f, fetched)
			}
			return nil
		})
	}
	return group.Wait()
}

// checkPaths refuses paths that this system cannot write, and two that it takes for one.
func checkPaths(files []File, ignoresCase bool) error {
	spelled := map[string]string{} // by paths that are the same for this system
	for _, f := range files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || runtime.GOOS == "windows" && strings.ContainsAny(f.Path, `<>:"|?*`) {
			return fmt.Errorf("output %s: %w: this system does not allow such a name; download the others by naming them, or this one elsewhere",
				paths.Quote(f.Path), ErrUnsafe)
		}
		if !ignoresCase {
			continue
		}
		names := []string{f.Path}
		for _, folder := range folders(f.Path) {
			names = append(names, folder)
		}
		for _, name := range names {
			key := strings.ToLower(name)
			if other, taken := spelled[key]; taken && other != name {
				return fmt.Errorf("output %s: %w: this system takes %s and %s for the same name; download one of them elsewhere, by naming it",
					paths.Quote(f.Path), ErrUnsafe, paths.Quote(other), paths.Quote(name))
			}
			spelled[key] = name
		}
	}
	return nil
}

// download writes one file, and returns how many bytes it fetched.
func (s *Store) download(ctx context.Context, id string, f File, root *os.Root) (fetched int64, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if has, err := hasContent(root, f.Path, f); has || err != nil {
		return 0, err
	}
	folder := path.Dir(f.Path)
	if err := root.MkdirAll(folder, 0o750); err != nil {
		return 0, err
	}
	part := path.Join(folder, partName(f))
	for try := 1; ; try++ {
		n, err := s.fetch(ctx, id, f, root, part)
		fetched += n
		if errors.Is(err, errDiffers) && try == 1 {
			continue // the rest of an earlier download may be damaged: it is removed now
		}
		if err != nil {
			return fetched, err
		}
		return fetched, root.Rename(part, f.Path)
	}
}

// partName returns the name of a file while it is written. Two files of a job may have the same
// content and the same folder, and are written at once.
func partName(f File) string {
	sum := sha256.Sum256([]byte(f.Path + "\x00" + f.SHA256))
	return ".spotworker-" + hex.EncodeToString(sum[:8]) + ".part"
}

// errDiffers means that a file does not have the content that its job sent.
var errDiffers = fmt.Errorf("%w: its content does not have the hash that was sent", ErrGone)

// hasContent reports whether a file is there with the right content.
func hasContent(root *os.Root, name string, f File) (bool, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		return false, fmt.Errorf("%w: there is a folder of that name", ErrUnsafe)
	case !info.Mode().IsRegular() || info.Size() != f.Size:
		return false, nil
	}
	file, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	h := sha256.New()
	_, err = io.Copy(h, file)
	return err == nil && sumIs(h, f), err
}

func sumIs(h hash.Hash, f File) bool { return hex.EncodeToString(h.Sum(nil)) == f.SHA256 }

// fetch writes the file under the name part, from where that ends. A part whose content
// turns out to be wrong is removed.
func (s *Store) fetch(ctx context.Context, id string, f File, root *os.Root, part string) (fetched int64, err error) {
	mode := fs.FileMode(0o640)
	if f.Executable {
		mode = 0o750
	}
	file, err := root.OpenFile(part, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if errors.Is(err, errDiffers) {
			err = errors.Join(err, root.Remove(part))
		}
	}()
	h := sha256.New()
	at, err := io.Copy(h, file)
	if err != nil {
		return 0, err
	}
	if at > f.Size {
		return 0, errDiffers
	}
	if at < f.Size {
		body, err := s.Open(ctx, id, f, at)
		if err != nil {
			return 0, err
		}
		fetched, err = io.Copy(io.MultiWriter(file, h), body)
		_ = body.Close()
		if err != nil {
			return fetched, err
		}
	}
	if !sumIs(h, f) {
		return fetched, errDiffers
	}
	return fetched, nil
}
