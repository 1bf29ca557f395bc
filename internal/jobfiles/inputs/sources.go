package inputs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/job"
)

// Containers returns the client of a container of one account.
type Containers func(name string) *container.Client

// sources are the containers that inputs may come from.
type sources struct {
	account Containers                   // the account of the jobs
	own     string                       // its blob endpoint
	others  map[string]*container.Client // containers of other accounts, see Config
	allowed []string                     // containers of the own account; empty for all
	private []string                     // containers of the own account that are the deployment's
	files   string                       // CONTAINER/PREFIX of the own account that is always allowed; empty for none
}

// container returns the client of the container of an input. The error says why inputs
// must not come from there.
func (s *sources) container(in job.Input) (*container.Client, error) {
	if in.Account != "" {
		address, err := named.AccountURL(in.Account)
		if err != nil {
			return nil, fmt.Errorf("field account %w", err)
		}
		if address != s.own {
			client := s.others[address+"/"+in.Container]
			if client == nil {
				return nil, fmt.Errorf("container %s/%s is not one that jobs may take inputs from; --input-container allows it",
					address, in.Container)
			}
			return client, nil
		}
	}
	switch {
	case s.files != "" && strings.HasPrefix(in.Container+"/"+in.Blob, s.files):
	case slices.Contains(s.private, in.Container):
		return nil, fmt.Errorf("container %s has the records and payloads of jobs: inputs cannot come from there", in.Container)
	case len(s.allowed) > 0 && !slices.Contains(s.allowed, in.Container):
		return nil, fmt.Errorf("container %s is not one that jobs may take inputs from; --input-container allows it", in.Container)
	}
	return s.account(in.Container), nil
}

// read fills data with the bytes of a file from offset on, of the version that was
// planned. An empty range needs no call.
func (s *sources) read(ctx context.Context, f *planned, data []byte, offset int64) error {
	if len(data) == 0 {
		return nil
	}
	client, err := s.container(job.Input{Account: f.account, Container: f.container, Blob: f.blob})
	if err != nil {
		return job.Permanent(err)
	}
	err = blobs.ReadRange(ctx, client.NewBlobClient(f.blob), f.etag, data, offset)
	if _, odd := errors.AsType[*blobs.LengthError](err); odd {
		return fmt.Errorf("read %s: %w", f.source, err)
	}
	if err != nil {
		return f.explain(ctx, err)
	}
	return nil
}

// explain translates an error. A version that the job needs and that is gone does not
// return.
func (f *planned) explain(ctx context.Context, err error) error {
	err = blobref.ExplainRead(ctx, "the input "+f.String(), role, err)
	if f.pinned && IsChanged(err) {
		return job.Permanent(fmt.Errorf("%s has changed: the job needs the version with ETag %s", f.source, f.etag))
	}
	return err
}

// readAll returns the content of a small blob.
func (s *sources) readAll(ctx context.Context, f planned) ([]byte, error) {
	data := make([]byte, f.size)
	return data, s.read(ctx, &f, data, 0)
}
