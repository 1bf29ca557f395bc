package inputs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/job"
)

// Bounds of a job's inputs.
const (
	// MaxFiles is the largest number of input files of a job.
	MaxFiles = 100_000

	// maxManifest is the largest manifest, in bytes.
	maxManifest = 16 << 20
)

const (
	// lookups is how many inputs of a job are looked up at once.
	lookups = 32

	// role is the role that the worker's identity needs to read inputs.
	role = "Storage Blob Data Reader"
)

// Plan has the files that the inputs of a job stand for, in the order of their paths.
type Plan struct {
	files []planned
	bytes int64
}

// planned is one file of a plan.
type planned struct {
	path     string // in the folder of inputs
	size     int64
	md5      []byte // nil if the service has none
	pinned   bool   // the job needs this version
	modified time.Time
	source
}

// source is one version of a blob.
type source struct {
	account, container, blob string
	etag                     azcore.ETag
}

// String names the blob in errors.
func (s source) String() string {
	if s.account != "" {
		return fmt.Sprintf("blob %q in container %s of %s", s.blob, s.container, s.account)
	}
	return fmt.Sprintf("blob %q in container %s", s.blob, s.container)
}

// key is the name of its cache entry. No two versions of blobs have the same one.
func (s source) key(own string) string {
	account := s.account
	if account == "" {
		account = own
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{account, s.container, s.blob, string(s.etag)}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Files returns the number of files and their bytes.
func (p *Plan) Files() (files int, bytes int64) { return len(p.files), p.bytes }

// Hash identifies the plan: the path, blob and version of every file.
func (p *Plan) Hash() string {
	sum := sha256.New()
	for i := range p.files {
		f := &p.files[i]
		for _, part := range []string{f.path, f.account, f.container, f.blob, string(f.etag)} {
			fmt.Fprintf(sum, "%d %s\n", len(part), part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Newest describes the file that was written last, for people who wonder what changed.
func (p *Plan) Newest() string {
	newest := slices.MaxFunc(p.files, func(a, b planned) int { return a.modified.Compare(b.modified) })
	if newest.modified.IsZero() {
		return newest.source.String()
	}
	return fmt.Sprintf("%s, at %s", newest.source, newest.modified.UTC().Format(time.RFC3339))
}

// Resolve finds out which files the inputs of a message stand for. An error that no retry
// can fix is permanent, an error of an unavailable service is [job.Unavailable].
func (f *Fetcher) Resolve(ctx context.Context, raw []byte) (*Plan, error) {
	all, err := named.Parse(raw)
	if err != nil {
		return nil, job.Permanent(err)
	}
	c, err := f.open()
	if err != nil {
		return nil, err
	}
	r := resolver{fetcher: f, cache: c, ctx: ctx}
	files, err := r.resolveAll(all, true)
	if err != nil {
		return nil, err
	}
	plan, places := &Plan{files: files}, newPlacer()
	for i := range files {
		if err := places.place(files[i].path, files[i].source.String()); err != nil {
			return nil, job.Permanent(err)
		}
		plan.bytes += files[i].size
	}
	slices.SortFunc(plan.files, func(a, b planned) int { return strings.Compare(a.path, b.path) })
	return plan, nil
}

// resolver resolves the inputs of one job.
type resolver struct {
	fetcher *Fetcher
	cache   *cache
	ctx     context.Context
}

// resolveAll returns the files of inputs. Inputs of a manifest may be no manifests.
func (r *resolver) resolveAll(all []job.Input, manifests bool) ([]planned, error) {
	found := make([][]planned, len(all))
	work, ctx := errgroup.WithContext(r.ctx)
	work.SetLimit(lookups)
	for i, in := range all {
		work.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			found[i], err = (&resolver{r.fetcher, r.cache, ctx}).resolve(in, manifests)
			return err
		})
	}
	err := work.Wait()
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	if err != nil {
		return nil, err
	}
	files := slices.Concat(found...)
	if len(files) > MaxFiles {
		return nil, tooMany(fmt.Sprintf("the job has %d input files", len(files)))
	}
	return files, nil
}

func tooMany(what string) error {
	return job.Permanent(fmt.Errorf("%s; at most %d are allowed: pack them into fewer blobs, or split the job", what, MaxFiles))
}

func (r *resolver) resolve(in job.Input, manifests bool) ([]planned, error) {
	client, err := r.fetcher.sources.container(in)
	if err != nil {
		return nil, job.Permanent(err)
	}
	switch {
	case in.Manifest != "" && !manifests:
		return nil, job.Permanent(errors.New("a manifest names another manifest"))
	case in.Manifest != "":
		return r.manifest(in)
	case in.Blob != "":
		file, err := r.lookUp(in)
		return []planned{file}, err
	}
	return r.list(client, in)
}

// lookUp finds the version and the size of one blob. A pinned blob in the cache needs no
// call.
func (r *resolver) lookUp(in job.Input) (planned, error) {
	name := in.Blob + in.Manifest
	file := planned{path: in.To, pinned: in.ETag != "", source: source{in.Account, in.Container, name, azcore.ETag(in.ETag)}}
	if file.path == "" {
		file.path = path.Base(name)
	}
	if file.pinned {
		if size, ok := r.cache.size(file.key(r.fetcher.sources.own)); ok {
			file.size = size
			return file, nil
		}
	}
	client, err := r.fetcher.sources.container(in)
	if err != nil {
		return file, job.Permanent(err)
	}
	b, err := blobs.In(client).Find(r.ctx, name)
	switch {
	case err != nil:
		return file, blobref.ExplainRead(r.ctx, "the input "+file.String(), role, err)
	case file.pinned && b.ETag != file.etag:
		return file, job.Permanent(fmt.Errorf("%s has changed: its ETag is %s, and the job needs %s", file.source, b.ETag, file.etag))
	case b.IsArchived:
		return file, blobref.Archived(file.String())
	}
	file.etag, file.size, file.md5, file.modified = b.ETag, b.Size, b.MD5, b.ModifiedAt
	return file, nil
}

// list finds the blobs with a prefix, 5,000 with each call.
func (r *resolver) list(client *container.Client, in job.Input) (files []planned, err error) {
	where := fmt.Sprintf("the blobs in container %s", in.Container)
	if in.Prefix != "" {
		where += fmt.Sprintf(" with the prefix %q", in.Prefix)
	}
	above := in.Prefix[:strings.LastIndexByte(in.Prefix, '/')+1]
	for b, err := range blobs.In(client).List(r.ctx, in.Prefix, false) {
		if err != nil {
			return nil, explainList(r.ctx, in, where, err)
		}
		file, err := listed(in, above, b)
		if err != nil {
			return nil, err
		}
		if files = append(files, file); len(files) > MaxFiles {
			return nil, tooMany(where + " are more than " + fmt.Sprint(MaxFiles))
		}
	}
	if files = withoutFolders(files); len(files) == 0 {
		return nil, job.Permanent(fmt.Errorf("there are no input files: %s are none", where))
	}
	return files, nil
}

// listed returns the file of a listed blob.
func listed(in job.Input, above string, b blobs.Blob) (planned, error) {
	file := planned{
		path: strings.TrimPrefix(b.Name, above), size: b.Size, md5: b.MD5, modified: b.ModifiedAt,
		source: source{in.Account, in.Container, b.Name, b.ETag},
	}
	if in.To != "" {
		file.path = in.To + "/" + file.path
	}
	if b.IsFolder {
		file.path, file.size = file.path+"/", 0 // of an account with folders
	}
	if b.IsArchived {
		return planned{}, blobref.Archived(file.String())
	}
	return file, nil
}

// withoutFolders removes the empty blobs that stand for folders: blobs whose name ends
// with a slash, and blobs with other files below them, as tools for Hadoop leave them.
func withoutFolders(files []planned) []planned {
	above := map[string]bool{}
	for i := range files {
		for at := strings.LastIndexByte(files[i].path, '/'); at >= 0; at = strings.LastIndexByte(files[i].path[:at], '/') {
			folder := files[i].path[:at]
			if above[folder] {
				break
			}
			above[folder] = true
		}
	}
	return slices.DeleteFunc(files, func(f planned) bool {
		return f.size == 0 && (f.path == "" || strings.HasSuffix(f.path, "/") || above[f.path])
	})
}

// manifest reads a manifest and resolves its lines.
func (r *resolver) manifest(in job.Input) ([]planned, error) {
	file, err := r.lookUp(in)
	if err != nil {
		return nil, err
	}
	if file.size > maxManifest {
		return nil, job.Permanent(fmt.Errorf("manifest %s has %d bytes; at most %d are allowed", file.source, file.size, maxManifest))
	}
	data, err := r.fetcher.sources.readAll(r.ctx, file)
	if err != nil {
		return nil, err
	}
	var all []job.Input
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		one, err := named.ParseOne(line)
		if err != nil {
			return nil, job.Permanent(fmt.Errorf("manifest %s, line %d: %w", file.source, n, err))
		}
		if all = append(all, one); len(all) > MaxFiles {
			return nil, tooMany(fmt.Sprintf("manifest %s has more than %d lines", file.source, MaxFiles))
		}
	}
	if len(all) == 0 {
		return nil, job.Permanent(fmt.Errorf("manifest %s names no inputs", file.source))
	}
	return r.resolveAll(all, false)
}

// IsChanged reports whether a fetch failed because a blob that the job did not pin has
// another version by now: it must be resolved again.
func IsChanged(err error) bool { return errors.Is(err, blobref.ErrChanged) }

// explainList translates an error of a listing.
func explainList(ctx context.Context, in job.Input, where string, err error) error {
	if ctx.Err() == nil && bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return job.Permanent(fmt.Errorf("the container %s of the job's inputs does not exist", in.Container))
	}
	return blobref.Explain(ctx, "list "+where, role, err)
}
