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

// uploadBlock is how much of an input is sent at once, in bytes.
const uploadBlock = 8 << 20

// uploadParallel is how many inputs are read at once.
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
				return fmt.Errorf("upload %s: %w", files[i].Blob, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func upload(ctx context.Context, to *container.Client, f *File) error {
	parts := &partsReader{left: f.Parts}
	defer parts.close()
	sum := sha256.New()
	options := blockblob.UploadStreamOptions{BlockSize: uploadBlock, Concurrency: 1}
	if _, err := to.NewBlockBlobClient(f.Blob).UploadStream(ctx, io.TeeReader(parts, sum), &options); err != nil {
		return err
	}
	f.SHA256, f.Size = hex.EncodeToString(sum.Sum(nil)), parts.bytes
	return nil
}

// partsReader reads files one after another, each opened when its turn comes.
type partsReader struct {
	left  []string
	open  *os.File
	bytes int64 // read so far
}

func (r *partsReader) Read(p []byte) (int, error) {
	for {
		if r.open == nil {
			if len(r.left) == 0 {
				return 0, io.EOF
			}
			file, err := os.Open(r.left[0])
			if err != nil {
				return 0, err
			}
			r.open, r.left = file, r.left[1:]
		}
		n, err := r.open.Read(p)
		r.bytes += int64(n)
		if err == io.EOF {
			r.close()
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (r *partsReader) close() {
	if r.open != nil {
		_ = r.open.Close() // it was only read
		r.open = nil
	}
}
