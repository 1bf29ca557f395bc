package lab

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// Odd is a message that no worker can do anything with: it is to end in the
// poison queue, with a reason that says why.
type Odd struct {
	Label  string // for the table
	Job    string // the id of its job, if it is one
	Text   string // of the message; empty if the producer makes it
	Reason string // what the reason must hold
}

// Messages that are put among the good ones.
var (
	missing = Odd{Label: "job whose blob is missing", Job: "lab-missing-blob", Reason: "does not exist"}
	newer   = Odd{
		Label: "envelope of an unknown version", Reason: "version 99",
		Text: base64.StdEncoding.EncodeToString([]byte(`{"v":99,"id":"lab-unknown-version","kind":"digest"}`)),
	}
	foreign = Odd{Label: "plain text, no envelope", Text: "please hash the archive", Reason: "neither an envelope"}
)

func oddMessages() []Odd { return []Odd{missing, newer, foreign} }

// putOdd puts the messages: the job through the producer, as anybody would, and
// the others straight on the queue.
func putOdd(ctx context.Context, p *Producer, account *azure.Account, queue string) error {
	payload, err := json.Marshal(map[string]string{"container": inputContainer, "blob": "no/such/archive.tar"})
	if err != nil {
		return err
	}
	if _, err := p.Run(ctx, "put", "--kind=digest", "--id="+missing.Job, "--payload="+string(payload)); err != nil {
		return err
	}
	for _, odd := range []Odd{newer, foreign} {
		options := &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}
		if _, err := account.Queue(queue).EnqueueMessage(ctx, odd.Text, options); err != nil {
			return fmt.Errorf("put a message (%s): %w", odd.Label, err)
		}
	}
	return nil
}

// poisonFact is a message in the poison queue, read with the lab's own eyes.
type poisonFact struct{ ID, Reason, Body string }

func readPoison(m storage.Message) (p poisonFact, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(m.Text)
	return p, err == nil && json.Unmarshal(raw, &p) == nil && p.Reason != ""
}

// is reports whether a poison message is the one that o became.
func (p poisonFact) is(o Odd) bool {
	if o.Job != "" {
		return p.ID == o.Job
	}
	return p.Body == o.Text
}

// gives reports whether its reason holds that text.
func (p poisonFact) gives(reason string) bool { return strings.Contains(p.Reason, reason) }
