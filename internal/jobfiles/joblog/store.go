package joblog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/listing"
)

// Prefix is the start of the names of the blobs with logs: <Prefix><hhh>/<job id>.
const Prefix = "logs/"

// callTimeout bounds one call, including the SDK's retries.
const callTimeout = 20 * time.Second

// maxBody is the most that is read of a blob.
const maxBody = 2 * MaxSize

// Keys of the metadata of a blob.
const (
	keyVersion = "v"
	keyCreated = "createdat" // of the job's record, which tells two jobs of one id apart
)

// version is the version of the format.
const version = "1"

// ErrSuperseded means that a later delivery of the job has written its log, or that the
// log is in a format of a newer version. This one writes nothing more.
var ErrSuperseded = errors.New("the job's log is another delivery's now")

// Store keeps the logs that are too long for the jobs' records, one blob each.
type Store struct{ container *container.Client }

// NewStore returns the store of the logs in container c, which has the payloads too.
func NewStore(c *container.Client) *Store { return &Store{container: c} }

func (s *Store) blob(id string) *blockblob.Client {
	return s.container.NewBlockBlobClient(Prefix + jobid.Path(id))
}

// Read returns the blob's lines of the log of a job whose record was created at that
// time; nothing if there is no blob, or if it belongs to an earlier job of the same id.
func (s *Store) Read(ctx context.Context, id string, created time.Time) (Document, error) {
	found, err := s.read(ctx, id)
	if err != nil || found.created != timeKey(created) || found.version != version {
		return Document{}, err
	}
	return found.document, nil
}

// stored is a blob as it was read. It has no ETag if there is none.
type stored struct {
	document         Document
	version, created string
	etag             azcore.ETag
}

func (s *Store) read(ctx context.Context, id string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := s.blob(id).DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("read the log of job %s: %w", id, err)
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		return stored{}, fmt.Errorf("read the log of job %s: %w", id, err)
	}
	found := stored{document: Parse(text), etag: *reply.ETag}
	for key, value := range reply.Metadata {
		switch {
		case value == nil:
		case strings.EqualFold(key, keyVersion): // HTTP libraries change the case of header names
			found.version = *value
		case strings.EqualFold(key, keyCreated):
			found.created = *value
		}
	}
	return found, nil
}

func timeKey(t time.Time) string { return t.UTC().Format(timeLayout) }

// Writer writes the log of one delivery. Its methods are for one goroutine at a time.
type Writer struct {
	store   *Store
	id      string
	created string
	log     *Log

	known  bool // whether etag is the blob's, as far as this writer knows
	etag   azcore.ETag
	wrote  bool // whether a write took effect, so that a blob of another job is a later one
	closed bool
}

// Writer returns the writer of a delivery's log, given when the job's record was created.
// The delivery must own the record when it calls [Writer.Write], unless the log has left
// the record ([Log.LeaveRecord]). first says that the
// record is the delivery's own, so that there should be no blob.
func (s *Store) Writer(id string, created time.Time, log *Log, first bool) *Writer {
	return &Writer{store: s, id: id, created: timeKey(created), log: log, known: first}
}

// maxTries bounds the tries of one write against conflicts.
const maxTries = 4

// Write writes the log as it is now. It changes nothing if that is not necessary. An
// error other than [ErrSuperseded] is storage's: a later write makes up for it.
func (w *Writer) Write(ctx context.Context) error {
	if w.closed {
		return ErrSuperseded
	}
	var err error
	for range maxTries {
		var found stored
		if !w.known {
			if found, err = w.store.read(ctx, w.id); err != nil {
				return err
			}
			if err := w.check(&found); err != nil {
				return err
			}
			w.known, w.etag = true, found.etag
		}
		document, ours := w.log.merge(found.document)
		if !ours {
			w.closed = true
			return ErrSuperseded
		}
		var etag azcore.ETag
		if etag, err = w.put(ctx, document); err == nil {
			w.etag, w.wrote = etag, true
			w.log.wrote(document)
			return nil
		}
		w.known = false
		if !bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound) {
			return err
		}
	}
	return err
}

// check decides the meaning of a blob that was found. A blob of another job of the same
// id is replaced, unless this delivery wrote the log before, so that the other job is
// later, or owns the record no more, so that it may be later.
func (w *Writer) check(found *stored) error {
	switch {
	case found.etag == "":
	case found.version != version && found.version != "", found.created != w.created && (w.wrote || w.log.left()):
		w.closed = true
		return ErrSuperseded
	case found.created != w.created:
		found.document = Document{}
	}
	return nil
}

func (w *Writer) put(ctx context.Context, d Document) (azcore.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conditions := blob.ModifiedAccessConditions{IfMatch: &w.etag}
	if w.etag == "" {
		conditions = blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}
	}
	reply, err := w.store.blob(w.id).Upload(ctx, streaming.NopCloser(bytes.NewReader(d.Encode())), &blockblob.UploadOptions{
		Metadata:         map[string]*string{keyVersion: new(version), keyCreated: &w.created},
		HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: new("text/plain; charset=utf-8")},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &conditions},
	})
	if err != nil {
		return "", fmt.Errorf("write the log of job %s: %w", w.id, err)
	}
	return *reply.ETag, nil
}

// Stored describes a blob with a log.
type Stored struct {
	ID         string // of the job
	Size       int64  // in bytes
	ModifiedAt time.Time
	ReadAt     time.Time // by the service's clock, as ModifiedAt
	etag       azcore.ETag
}

// List yields the blobs with logs, in the order of the records' names ([jobid.Path]). It
// costs a call for each 5,000.
func (s *Store) List(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for page, err := range listing.Pages(ctx, time.Minute, s.container, container.ListBlobsFlatOptions{Prefix: new(Prefix)}) {
			if err != nil {
				yield(Stored{}, fmt.Errorf("list logs: %w", err))
				return
			}
			for _, item := range page.Blobs {
				if found, ok := storedOf(item, page.Date); ok && !yield(found, nil) {
					return
				}
			}
		}
	}
}

// storedOf describes a listed blob. It reports false for a blob that is no log.
func storedOf(item *container.BlobItem, read time.Time) (s Stored, ok bool) {
	p := item.Properties
	_, id, _ := strings.Cut(strings.TrimPrefix(*item.Name, Prefix), "/")
	if jobid.Validate(id) != nil || *item.Name != Prefix+jobid.Path(id) {
		return s, false
	}
	etag := *p.ETag
	if !strings.HasPrefix(string(etag), `"`) { // a listing has it without quotes
		etag = `"` + etag + `"`
	}
	return Stored{ID: id, Size: *p.ContentLength, ModifiedAt: *p.LastModified, ReadAt: read, etag: etag}, true
}

// Remove deletes a log as it was listed, and reports false if it was written or removed
// since.
func (s *Store) Remove(ctx context.Context, l Stored) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.blob(l.ID).Delete(ctx, &blob.DeleteOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &l.etag},
	}})
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove the log of job %s: %w", l.ID, err)
	}
	return true, nil
}
