package lab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/azure"
)

// Producer runs the producer binary against a local storage account.
type Producer struct {
	Path             string // of the binary
	ConnectionString string // must name loopback endpoints
}

// Run runs the producer with those arguments. It makes the queues and
// containers that it needs, and returns the job ids that it confirmed. The
// error wraps [ErrNotLocal], and nothing was started, if it could reach
// anything beyond loopback.
func (p *Producer) Run(ctx context.Context, args ...string) ([]string, error) {
	if err := CheckStorage(p.ConnectionString); err != nil {
		return nil, fmt.Errorf("start the producer: %w", err)
	}
	cmd := exec.CommandContext(ctx, p.Path, args...) //nolint:gosec // the binary was built by us
	cmd.Env = environment(p.ConnectionString)
	cmd.SysProcAttr = apart()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("enqueue with the producer: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var ids []string
	for id := range bytes.FieldsSeq(out.Bytes()) {
		ids = append(ids, string(id))
	}
	return ids, nil
}

// The input comes in two batches, with the odd messages between them. Whoever
// takes those is to have done real jobs before: a worker whose first jobs take
// no time expects more of that sort, and claims many messages at once.
const (
	firstBatch  = "batch-1/"
	secondBatch = "batch-2/"
)

// intoBatches puts all but an eighth of the input into the first batch.
func intoBatches(files []File) {
	for i := range files {
		batch := firstBatch
		if i >= len(files)-len(files)/8 {
			batch = secondBatch
		}
		files[i].Blob = batch + files[i].Blob
	}
}

// enqueue has the producer put a job for each input: one of them twice if a
// duplicate is wanted, and with messages among them that are no work.
func (d *demo) enqueue(ctx context.Context, p *Producer, account *azure.Account) error {
	if d.Duplicate {
		twice := notAPrefix(d.files)
		if _, err := digests(ctx, p, twice.Blob); err != nil {
			return err
		}
		d.say("`producer digests` put a job for %s on the queue.", baseName(twice.Blob))
	}
	first, err := digests(ctx, p, firstBatch)
	if err != nil {
		return err
	}
	if d.Odd {
		d.ledger.ExpectPoison(oddMessages())
		if err := putOdd(ctx, p, account, d.ledger.names.Queue); err != nil {
			return err
		}
	}
	second, err := digests(ctx, p, secondBatch)
	if err != nil {
		return err
	}
	jobs := len(first) + len(second)
	if jobs != len(d.files) {
		return fmt.Errorf("producer confirmed %s for %s", plural(jobs, "job"), plural(len(d.files), "blob"))
	}
	d.tellQueue(jobs)
	return nil
}

// tellQueue says what is on the queue.
func (d *demo) tellQueue(jobs int) {
	d.say("`producer digests` put %s on the queue. Downloads go %s.", plural(jobs, "job"), d.pace)
	if d.Duplicate {
		d.say("One of them is a duplicate: it has the id of the job that is there already.")
	}
	if d.Odd {
		d.say("Among them: a job whose blob does not exist, an envelope of a version that does not exist, and a plain text.")
	}
}

// digests has the producer put a job for each blob of that name prefix, in the
// order of their names.
func digests(ctx context.Context, p *Producer, prefix string) ([]string, error) {
	return p.Run(ctx, "--parallel=1", "digests", "--container="+inputContainer, "--name-prefix="+prefix)
}

// notAPrefix returns the first input whose name no other starts with.
func notAPrefix(files []File) File {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Blob, b.Blob) })
	for i, f := range sorted {
		if i+1 == len(sorted) || !strings.HasPrefix(sorted[i+1].Blob, f.Blob) {
			return f
		}
	}
	return File{}
}
