package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"
)

// uploadBlock is how much of a file is sent at once, in bytes.
const uploadBlock = 8 << 20

// uploadParallel is how many files are read at once.
const uploadParallel = 2

// Upload makes the container and copies the files into it. It sets SHA256 and
// Size of each to those of the bytes that it read, which is what the jobs' results
// are compared with.
func Upload(ctx context.Context, to *container.Client, files []File) error {
	if _, err := to.Create(ctx, nil); err != nil {
		return fmt.Errorf("create the container of the input: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(uploadParallel)
	for i := range files {
		group.Go(func() error {
			if err := upload(ctx, to, &files[i]); err != nil {
				return fmt.Errorf("upload %s: %w", files[i].Path, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func upload(ctx context.Context, to *container.Client, f *File) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	counted := &counter{reader: io.TeeReader(file, sum)}
	options := blockblob.UploadStreamOptions{BlockSize: uploadBlock, Concurrency: 1}
	if _, err := to.NewBlockBlobClient(f.Blob).UploadStream(ctx, counted, &options); err != nil {
		return err
	}
	f.SHA256, f.Size = hex.EncodeToString(sum.Sum(nil)), counted.bytes
	return nil
}

// counter counts the bytes that are read through it.
type counter struct {
	reader io.Reader
	bytes  int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	c.bytes += int64(n)
	return n, err
}
