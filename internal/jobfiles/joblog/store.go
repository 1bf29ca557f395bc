package joblog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// Prefix is the start of the names of the blobs with logs:
// <Prefix><hhh>/<job id>,<creation of its record>,<generation>. The comma comes before all
// characters of ids, so that logs are listed in the order of their jobs' records.
const Prefix = "logs/"

const (
	// maxBody is the most that is read of a blob.
	maxBody = 2 * MaxSize

	// mostBlobs is how many blobs a job keeps: the last ones.
	mostBlobs = 16
)

// Metadata of a blob.
const (
	keyVersion = "v"
	version    = "1"
)

// delivery identifies one delivery of a job, which alone writes one blob.
type delivery struct {
	job        string
	created    time.Time // the job's record, which tells two jobs of one id apart
	generation int
}

// createdLayout is the layout of the creation of a record in the name of a blob.
const createdLayout = "20060102T150405.000Z"

// folder returns the part of the name that all blobs of the job have in common.
func (d delivery) folder() string {
	return Prefix + jobid.Path(d.job) + "," + d.created.UTC().Format(createdLayout) + ","
}

func (d delivery) name() string { return d.folder() + strconv.Itoa(d.generation) }

// parseName returns the delivery of a blob. It reports false for a blob that is no log.
func parseName(name string) (d delivery, ok bool) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(name, Prefix), "/")
	fields := strings.Split(rest, ",")
	if len(fields) != 3 || jobid.Validate(fields[0]) != nil {
		return d, false
	}
	created, createdErr := time.Parse(createdLayout, fields[1])
	generation, err := strconv.Atoi(fields[2])
	d = delivery{fields[0], created, generation}
	return d, createdErr == nil && err == nil && d.name() == name
}

// Owner returns the job and the generation of the delivery that writes the blob of that name.
func Owner(name string) (job string, generation int, ok bool) {
	d, ok := parseName(name)
	return d.job, d.generation, ok
}

// Store keeps the logs that are too long for the jobs' records.
type Store struct{ blobs blobs.Container }

// NewStore returns the store of the logs in container c, which has the payloads too.
func NewStore(c *container.Client) *Store { return &Store{blobs.In(c)} }

// Read returns the stored lines of the log of a job whose record was created at that time.
func (s *Store) Read(ctx context.Context, id string, created time.Time) (all Document, err error) {
	deliveries, err := s.of(ctx, delivery{job: id, created: created})
	if err != nil {
		return Document{}, err
	}
	for _, d := range deliveries {
		found, err := s.read(ctx, d)
		if err != nil {
			return Document{}, err
		}
		all = Merge(all, found)
	}
	return all, nil
}

// of returns the deliveries of a job that have a blob, in their order.
func (s *Store) of(ctx context.Context, job delivery) (all []delivery, err error) {
	for b, err := range s.blobs.List(ctx, job.folder(), false) {
		if err != nil {
			return nil, fmt.Errorf("list the log of job %s: %w", job.job, err)
		}
		if d, ok := parseName(b.Name); ok {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b delivery) int { return cmp.Compare(a.generation, b.generation) })
	return all, nil
}

// read returns the lines of one blob; nothing if it is gone or of a newer version.
func (s *Store) read(ctx context.Context, d delivery) (Document, error) {
	found, text, err := s.blobs.Get(ctx, d.name(), maxBody)
	if blobs.IsMissing(err) {
		return Document{}, nil
	}
	if err != nil {
		return Document{}, fmt.Errorf("read the log of job %s: %w", d.job, err)
	}
	for key, value := range found.Metadata { // HTTP libraries change the case of header names
		if strings.EqualFold(key, keyVersion) && value != nil && *value != version {
			return Document{}, nil
		}
	}
	return Parse(text), nil
}

// put writes the blob of a delivery over its last version, whose ETag is empty for none, and returns
// the new ETag. The condition stops an earlier write that was not answered, and arrives late, from
// putting older lines back; a write that arrived in time has another ETag, which is read then.
func (s *Store) put(ctx context.Context, d delivery, last azcore.ETag, text []byte) (azcore.ETag, error) {
	write := func(last azcore.ETag) (azcore.ETag, error) {
		return s.blobs.Put(ctx, d.name(), text, blobs.Options{
			Type: "text/plain; charset=utf-8", Metadata: map[string]*string{keyVersion: new(version)}, If: blobs.Same(last),
		})
	}
	etag, err := write(last)
	if blobs.IsConflict(err) {
		var found blobs.Blob
		if found, err = s.blobs.Find(ctx, d.name()); err == nil || blobs.IsMissing(err) {
			etag, err = write(found.ETag)
		}
	}
	if err != nil {
		return last, fmt.Errorf("write the log of job %s: %w", d.job, err)
	}
	return etag, nil
}

// bound removes the blobs of much earlier deliveries of the job.
func (s *Store) bound(ctx context.Context, d delivery) error {
	if d.generation <= mostBlobs {
		return nil
	}
	all, err := s.of(ctx, d)
	if err != nil {
		return err
	}
	for _, old := range all[:max(len(all)-mostBlobs, 0)] {
		if _, err := s.remove(ctx, old.name(), d.job); err != nil {
			return err
		}
	}
	return nil
}

// Stored describes the blobs with the logs of a job id.
type Stored struct {
	ID         string    // of the job
	Size       int64     // in bytes
	ModifiedAt time.Time // when the last of them was written
	ReadAt     time.Time // by the service's clock, as ModifiedAt
	names      []string
}

// List yields the logs of all jobs, in the order of the records' names ([jobid.Path]). It
// costs a call for each 5,000 blobs.
func (s *Store) List(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		var job Stored
		for b, err := range s.blobs.List(ctx, Prefix, false) {
			if err != nil {
				yield(Stored{}, fmt.Errorf("list logs: %w", err))
				return
			}
			d, ok := parseName(b.Name)
			if !ok {
				continue
			}
			if job.ID != d.job {
				if job.ID != "" && !yield(job, nil) {
					return
				}
				job = Stored{ID: d.job, ReadAt: b.ReadAt}
			}
			job.Size += b.Size
			job.names = append(job.names, b.Name)
			if b.ModifiedAt.After(job.ModifiedAt) {
				job.ModifiedAt = b.ModifiedAt
			}
		}
		if job.ID != "" {
			yield(job, nil)
		}
	}
}

// Remove deletes the logs of a job id as they were listed, and reports whether any was left.
func (s *Store) Remove(ctx context.Context, l Stored) (removed bool, err error) {
	for _, name := range l.names {
		one, err := s.remove(ctx, name, l.ID)
		if err != nil {
			return removed, err
		}
		removed = removed || one
	}
	return removed, nil
}

func (s *Store) remove(ctx context.Context, name, id string) (removed bool, err error) {
	if removed, err = s.blobs.Delete(ctx, name, ""); err != nil {
		return false, fmt.Errorf("remove the log of job %s: %w", id, err)
	}
	return removed, nil
}
