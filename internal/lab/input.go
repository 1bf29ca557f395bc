package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/text"
)

// The input of digest jobs, unless flags say otherwise.
const (
	InputContainer = "lab-files"
	FileSize       = 32 << 20
	JobTime        = 12 * time.Second

	// MaxFiles is how many inputs there may be.
	MaxFiles = 1000
)

// smallestInput is the least size of an input, in bytes: more than two of the
// 4 MiB ranges that a digest job reads, so that each job has a middle.
const smallestInput = 9 << 20

// File is a blob that a digest job hashes. It consists of whole files of this
// machine, one after another: few files are as large as a job should be.
type File struct {
	// Blob is the blob's name: the first file's path without its leading slash,
	// and how many more there are, as in "usr/lib/libx.so+3".
	Blob   string
	Parts  []string // the files' paths
	Size   int64
	SHA256 string // lower-case hex, computed during the upload
}

// Roots returns the folders in which [Choose] looks for files, best first: the
// Go installation if there is one, then what most systems have.
func Roots(ctx context.Context) []string {
	roots := []string{"/usr/lib", "/usr/bin", "/usr/share", "/Library"}
	if runtime.GOOS == "windows" {
		roots = []string{filepath.Join(os.Getenv("SystemRoot"), "System32"), os.Getenv("ProgramFiles")}
		if self, err := os.Executable(); err == nil {
			roots = append(roots, filepath.Dir(self)) // with the other programs
		}
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if goroot := strings.TrimSpace(string(out)); err == nil && goroot != "" {
		roots = slices.Insert(roots, 0, goroot)
	}
	return roots
}

// Choose makes n inputs of about that size, from an eighth less to a quarter
// more, of readable regular files below the first roots that have enough of
// them. If all roots together have too little, inputs are smaller, or there are
// fewer. The same files give the same choice.
func Choose(roots []string, n int, size int64) ([]File, error) {
	least, most := size-size/8, size+size/4
	var found []part
	for _, root := range roots {
		found = append(found, filesBelow(root, most)...)
		slices.SortFunc(found, largerFirst)
		if chosen := pack(found, n, least, most); len(chosen) == n {
			return chosen, nil
		}
	}
	for ; least > smallestInput; least -= least / 8 {
		if chosen := pack(found, n, least, most); len(chosen) == n {
			return chosen, nil
		}
	}
	if chosen := pack(found, n, smallestInput, most); len(chosen) > 0 {
		return chosen, nil
	}
	return nil, errors.New("too few readable files to work on in " + strings.Join(roots, ", "))
}

// part is a file that may become part of an input.
type part struct {
	path string
	size int64
}

// filesBelow returns the regular files below root that are not larger than most
// bytes. It skips folders that cannot be read.
func filesBelow(root string, most int64) []part {
	var found []part
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is no input
		}
		info, err := entry.Info()
		if err != nil || info.Size() == 0 || info.Size() > most || !isPlain(filepath.ToSlash(path)) {
			return nil //nolint:nilerr // as above
		}
		found = append(found, part{path, info.Size()})
		return nil
	})
	return found
}

func largerFirst(a, b part) int {
	return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.path, b.path))
}

// pack makes up to n inputs of least to most bytes from files in order of
// decreasing size. It uses no file twice.
func pack(found []part, n int, least, most int64) []File {
	used := make([]bool, len(found))
	var inputs []File
	for range n {
		input := packOne(found, used, least, most)
		if input.Size < least {
			break
		}
		input.Blob = blobName(input.Parts)
		inputs = append(inputs, input)
	}
	return inputs
}

// packOne makes one input by adding the largest file that still fits until it
// has least bytes.
func packOne(found []part, used []bool, least, most int64) (input File) {
	for i, f := range found {
		switch {
		case input.Size >= least:
			return input
		case used[i] || input.Size+f.size > most:
		case !isReadable(f.path):
			used[i] = true
		default:
			used[i] = true
			input.Parts, input.Size = append(input.Parts, f.path), input.Size+f.size
		}
	}
	return input
}

// isPlain reports whether every client encodes a path the same way as a blob's
// name.
func isPlain(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\?#%"`, c) })
}

func blobName(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	path := strings.TrimPrefix(parts[0], filepath.VolumeName(parts[0]))
	name := strings.TrimPrefix(filepath.ToSlash(path), "/")
	if more := len(parts) - 1; more > 0 {
		name += fmt.Sprintf("+%d", more)
	}
	return name
}

func isReadable(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

// Folders says how many files come from which root, for people.
func Folders(files []File, roots []string) string {
	count, total := map[string]int{}, 0
	for _, f := range files {
		for _, path := range f.Parts {
			total++
			count[rootOf(path, roots)]++
		}
	}
	var folders []string
	for _, root := range roots {
		if n := count[root]; n > 0 {
			folders = append(folders, fmt.Sprintf("%d from %s", n, root))
		}
	}
	return text.Plural(total, "file") + ": " + strings.Join(folders, ", ")
}

func rootOf(path string, roots []string) string {
	for _, root := range roots {
		if strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return root
		}
	}
	return ""
}

// TotalSize returns the size of all files, in bytes.
func TotalSize(files []File) (bytes int64) {
	for _, f := range files {
		bytes += f.Size
	}
	return bytes
}

const (
	uploadBlock    = 8 << 20 // bytes of an input that are sent at a time
	uploadParallel = 2       // inputs that are uploaded at a time
)

// Upload creates the container and copies the files into it. It sets SHA256 and Size of
// each to the values of the bytes that it read: the jobs' results are compared with them.
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

// partsReader reads files one after another and has at most one of them open.
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

// Pace limits the bandwidth of each download of the input. On loopback a job
// would otherwise end before anything could happen to it.
type Pace struct {
	rate int64 // bytes per second; 0 is no limit
}

// PaceFor returns the pace at which a job of average size takes about jobTime; 0
// is no limit.
func PaceFor(files []File, jobTime time.Duration) (p Pace) {
	if jobTime > 0 && len(files) > 0 {
		p.rate = max(1, int64(float64(TotalSize(files))/float64(len(files))/jobTime.Seconds()))
	}
	return p
}

// Fault returns the bandwidth of a storage call.
func (p Pace) Fault(c storage.Call) storage.Fault {
	if c.Operation != storage.OpGetBlob || c.Container != InputContainer {
		return storage.Fault{}
	}
	return storage.Fault{Bandwidth: storage.Bandwidth{Down: p.rate}}
}

func (p Pace) String() string {
	if p.rate == 0 {
		return "as fast as they go"
	}
	return fmt.Sprintf("at %s/s each", text.Size(p.rate))
}
