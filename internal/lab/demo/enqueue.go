package demo

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// The input comes in two batches, with the bad messages between them. A worker that takes
// these has then run real jobs before: after a first job without run time a worker
// expects more such jobs, and claims many messages at once.
const (
	firstBatch  = "batch-1/"
	secondBatch = "batch-2/"
)

// intoBatches puts all but an eighth of the input into the first batch.
func intoBatches(files []lab.File) {
	for i := range files {
		batch := firstBatch
		if i >= len(files)-len(files)/8 {
			batch = secondBatch
		}
		files[i].Blob = batch + files[i].Blob
	}
}

// enqueue puts a job for each input as "producer digests" does, and the duplicate and the
// bad messages if they are configured.
func (d *demo) enqueue(ctx context.Context, account *azure.Account) error {
	stores := deployment.StoresOf(account, d.stage.Names)
	if err := stores.Create(ctx); err != nil {
		return err
	}
	jobs := 0
	put := func(specs iter.Seq2[producer.Spec, error]) error {
		p := &producer.Producer{
			Queue: stores.Jobs, ReadQueues: stores.Jobs.ReadToPut, Payloads: stores.Payloads, Parallel: 1,
			Failed: func(bad *producer.JobError) error { return bad },
		}
		sum, err := p.Run(ctx, specs)
		jobs += sum.Put
		return err
	}
	digests := func(prefix string) error {
		return put(producer.Digests(ctx, account.Container(lab.InputContainer), lab.InputContainer, prefix, producer.Spec{}))
	}
	if d.config.Duplicate {
		twice := notAPrefix(d.files)
		if err := digests(twice.Blob); err != nil {
			return err
		}
		d.narrator.Say("A job for %s is on the queue.", shortName(twice.Blob))
		jobs = 0
	}
	if err := digests(firstBatch); err != nil {
		return err
	}
	if d.config.BadMessages {
		d.add(func(h *history) { h.bad = badMessages() })
		if err := put(missing); err != nil {
			return err
		}
		jobs--
		if err := putBadMessages(ctx, account.Queue(d.stage.Names.Queue)); err != nil {
			return err
		}
	}
	if err := digests(secondBatch); err != nil {
		return err
	}
	if jobs != len(d.files) {
		return fmt.Errorf("put %s for %s", text.Plural(jobs, "job"), text.Plural(len(d.files), "blob"))
	}
	d.expectJobs()
	d.narrateQueue(jobs)
	return nil
}

// expectJobs makes the recorder expect the jobs on the queue.
func (d *demo) expectJobs() {
	files := map[string]lab.File{}
	for _, f := range d.files {
		files[f.Blob] = f
	}
	blobs := map[string]string{}
	for _, m := range d.stage.Local.Storage.Messages(d.stage.Names.Queue) {
		envelope, ok := oracle.ReadMessage(m.Text)
		var payload struct{ Blob string }
		if !ok || json.Unmarshal(envelope.Payload, &payload) != nil {
			continue // it is no job
		}
		if _, twice := blobs[envelope.ID]; !twice {
			blobs[envelope.ID] = payload.Blob
			d.stage.Recorder.Expect(envelope.ID, oracle.Job{Put: time.Now(), Healthy: true}, func(result []byte) bool {
				return isDigest(result, files[payload.Blob])
			})
		}
		d.stage.Recorder.AddMessage(m.ID, envelope.ID)
	}
	d.add(func(h *history) { h.files, h.blobs = files, blobs })
}

// narrateQueue prints the messages on the queue.
func (d *demo) narrateQueue(jobs int) {
	d.narrator.Say("%s put on the queue, as by `producer digests`. Downloads go %s.", text.Plural(jobs, "job"), d.pace)
	if d.config.Duplicate {
		d.narrator.Say("One of them is a duplicate: a job with its id is on the queue already.")
	}
	if d.config.BadMessages {
		d.narrator.Say("Among them: a job whose blob does not exist, an envelope of a version that does not exist, and a plain text.")
	}
}

// notAPrefix returns the first input whose name is not the beginning of another's.
func notAPrefix(files []lab.File) lab.File {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b lab.File) int { return strings.Compare(a.Blob, b.Blob) })
	for i, f := range sorted {
		if i+1 == len(sorted) || !strings.HasPrefix(sorted[i+1].Blob, f.Blob) {
			return f
		}
	}
	return lab.File{}
}

// badMessage is a message that no worker can process. It must become a poison
// message with a reason that says why.
type badMessage struct {
	label  string // for the table
	job    string // the id of its job; empty if it has none
	text   string // of the message; empty if it is a job
	reason string // part of the reason
}

var (
	missingBlob    = badMessage{label: "job whose blob is missing", job: "lab-missing-blob", reason: "does not exist"}
	unknownVersion = badMessage{
		label: "envelope of an unknown version", reason: "version 99",
		text: base64.StdEncoding.EncodeToString([]byte(`{"v":99,"id":"lab-unknown-version","kind":"digest"}`)),
	}
	plainText = badMessage{label: "plain text, no envelope", text: "please hash the archive", reason: "neither an envelope"}
)

func badMessages() []badMessage { return []badMessage{missingBlob, unknownVersion, plainText} }

// missing yields the job whose blob is missing.
func missing(yield func(producer.Spec, error) bool) {
	payload, err := queue.JSONPayload([]byte(`{"container":"` + lab.InputContainer + `","blob":"no/such/archive.tar"}`))
	yield(producer.Spec{ID: missingBlob.job, Kind: "digest", Payload: payload}, err)
}

// putBadMessages puts the messages that are no jobs.
func putBadMessages(ctx context.Context, to *azqueue.QueueClient) error {
	for _, b := range []badMessage{unknownVersion, plainText} {
		if _, err := to.EnqueueMessage(ctx, b.text, &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}); err != nil {
			return fmt.Errorf("put a message (%s): %w", b.label, err)
		}
	}
	return nil
}

// poisonMessage is a message in the poison queue.
type poisonMessage struct{ ID, Reason, Body string }

func readPoison(message string) (p poisonMessage, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(message)
	return p, err == nil && json.Unmarshal(raw, &p) == nil && p.Reason != ""
}

// became reports whether a poison message is this message, with the right reason.
func (b badMessage) became(p poisonMessage) bool {
	same := p.Body == b.text
	if b.job != "" {
		same = p.ID == b.job
	}
	return same && strings.Contains(p.Reason, b.reason)
}
