package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/storage/upload"
	"github.com/spotworker/spotworker/job"
)

// Command describes a job that runs a command, for [Client.Put]: a program, by its name or path,
// and its arguments. No shell reads them. Its worker must run with --commands. The standard
// output is the result; [Client.Attach] adds the files that the command needs. Change the fields
// of the Spec as for any job, such as MaxFailures.
func Command(program string, arguments ...string) Spec {
	return Spec{Kind: command.Kind, Payload: command.Command{Argv: append([]string{program}, arguments...)}}
}

// Limits of an attached folder.
var attachable = archive.Limits{Bytes: job.MaxStream, Entries: 1_000_000, Names: 256 << 20}

// Attach stores a file or a folder and adds it to a job of [Command], which finds it in its
// working folder under the name, a path with slashes. An empty name is the file's own; "." puts
// the content of a folder into the working folder itself, as the path "." does. Modes are kept
// as far as they make files executable. Links in a folder stay links, and must not lead out of it.
//
// A content that any producer has stored is not sent again: one content has one blob,
// in the container of outputs. Attach costs two calls then, and otherwise what [Client.Upload]
// does. [Client.Clean] removes it when no open job can name it.
func (c *Client) Attach(ctx context.Context, spec *Spec, path, name string) error {
	to, ok := spec.Payload.(command.Command)
	if !ok {
		return errors.New("files can be attached to a job of client.Command alone")
	}
	if name == "" {
		whole, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if name = filepath.Base(whole); filepath.Clean(path) == "." {
			name = "."
		}
	}
	content, file, err := contentOf(ctx, path)
	if err != nil {
		return err
	}
	if file.Input, err = content.digest(ctx); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	file.Path = filepath.ToSlash(name)
	to.Files = append(slices.Clone(to.Files), file)
	if err := to.Check(); err != nil {
		return err
	}
	input := inputOf(c.stores.Names.Outputs, file.Input)
	if err := c.store(ctx, input, content, file.Input); err != nil {
		return fmt.Errorf("upload %s: %w", path, err)
	}
	if spec.Payload = to; !slices.Contains(spec.Inputs, input) {
		spec.Inputs = append(slices.Clone(spec.Inputs), input)
	}
	return nil
}

// inputOf is the input that is stored under a hash, for a job that is put now.
func inputOf(container, hash string) job.Input {
	return job.Input{Container: container, Blob: outputs.FileName(hash, time.Now())}
}

// content is what is sent of a file or a folder.
type content struct {
	size int64
	open func() (io.ReadCloser, error)
}

// contentOf returns what is sent of a path: a file as it is, and a folder as an archive.
func contentOf(ctx context.Context, path string) (content, command.File, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return content{}, command.File{}, err
	case info.IsDir():
		index, err := archive.Scan(ctx, path, attachable)
		if err != nil {
			return content{}, command.File{}, fmt.Errorf("folder %s: %w", path, err)
		}
		return content{index.Size(), index.Open}, command.File{Folder: true}, nil
	case !info.Mode().IsRegular():
		return content{}, command.File{}, fmt.Errorf("%s is neither a file nor a folder", path)
	}
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	return content{info.Size(), open}, command.File{Executable: info.Mode()&0o111 != 0}, nil
}

// digest returns the SHA-256 of the content.
func (f content) digest(ctx context.Context) (string, error) {
	in, err := f.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(sum, in, copyPart)
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// copyPart is how much is hashed between two looks at the context, in bytes.
const copyPart = 64 << 20

// store sends a content as the blob that has its hash as its name, if there is none.
func (c *Client) store(ctx context.Context, to job.Input, f content, sum string) error {
	container := c.stores.Account.Container(to.Container)
	switch _, err := container.NewBlobClient(to.Blob).GetProperties(ctx, nil); {
	case err == nil:
		return nil
	case !bloberror.HasCode(err, bloberror.BlobNotFound):
		return c.uploadError(to, err)
	}
	in, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	_, err = c.send(ctx, container, to, &sameContent{from: in, want: sum, sum: sha256.New()}, upload.Options{
		Size: f.size, Type: "application/octet-stream",
	})
	if errors.Is(err, upload.ErrTaken) { // by another producer with the same content
		return nil
	}
	return err
}

// errAltered means that a file is not what it was when its hash was taken.
var errAltered = errors.New("it changes while it is read")

// sameContent reads a content, and fails at its end if it is another one than before.
type sameContent struct {
	from io.Reader
	want string
	sum  hash.Hash
}

func (s *sameContent) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	_, _ = s.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(s.sum.Sum(nil)) != s.want {
		err = errAltered
	}
	return n, err
}
