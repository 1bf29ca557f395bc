package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// line is a change of one job's status, in the JSON output.
type line struct {
	ID     string `json:"id,omitempty"` // empty if the input line has none
	Status string `json:"status"`

	Where  string        `json:"where,omitempty"`  // in the input
	Record client.Status `json:"record,omitempty"` // the status of the record that existed before
	DryRun bool          `json:"dry_run,omitempty"`
	Kind   string        `json:"kind,omitempty"`  // in a dry run
	Bytes  *int64        `json:"bytes,omitempty"` // of the payload, in a dry run
	Delay  string        `json:"delay,omitempty"`

	Warning string `json:"warning,omitempty"` // why the job cannot meet its deadline

	Error string `json:"error,omitempty"` // why the job failed, is poison or was cancelled

	// Result is the result if it is JSON, and otherwise the result as a string.
	// ResultBase64 replaces it if the result is not text.
	Result       json.RawMessage `json:"result,omitempty"`
	ResultBase64 []byte          `json:"result_base64,omitempty"`
}

// summary is the last line of a run.
type summary struct {
	DryRun   bool     `json:"dry_run,omitempty"`
	Enqueued int      `json:"enqueued"`
	Skipped  int      `json:"skipped"`
	Failed   int      `json:"failed"`
	Found    *found   `json:"found,omitempty"` // records of the ids that were checked
	Waited   *endings `json:"waited,omitempty"`
	Last     string   `json:"last,omitempty"` // the place in the input of the last job that was taken
	Seconds  float64  `json:"seconds"`
	Error    string   `json:"error,omitempty"` // why the exit code is not 0
}

// found counts the records that existed before, by their status.
type found struct {
	Done      int `json:"done,omitempty"`
	Running   int `json:"running,omitempty"` // or open: waiting for a worker
	Poison    int `json:"poison,omitempty"`
	Cancelled int `json:"cancelled,omitempty"`
}

// count counts a record; a nil found counts nothing.
func (n *found) count(status client.Status) {
	if n == nil {
		return
	}
	switch status {
	case client.StatusDone:
		n.Done++
	case client.StatusPoison:
		n.Poison++
	case client.StatusCancelled:
		n.Cancelled++
	case client.StatusUnknown:
	case client.StatusOpen, client.StatusRunning:
		n.Running++
	}
}

// withoutResult returns how many jobs have ended without a result.
func (n *found) withoutResult() int {
	if n == nil {
		return 0
	}
	return n.Poison + n.Cancelled
}

// text lists the skipped jobs by status, if some ended without a result.
func (n *found) text() string {
	if n.withoutResult() == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d done, %d poison, %d cancelled)", n.Done, n.Poison, n.Cancelled)
}

// endings counts the outcomes of the jobs that were waited for.
type endings struct {
	Done      int `json:"done"`
	Poison    int `json:"poison"`
	Cancelled int `json:"cancelled"`
	Failed    int `json:"failed"`  // their outcome is unknown
	Pending   int `json:"pending"` // not ended when the waiting ended
}

func (n *endings) count(o client.Outcome) {
	n.Pending--
	switch {
	case o.Err == nil:
		n.Done++
	case errors.Is(o.Err, client.ErrPoison):
		n.Poison++
	case errors.Is(o.Err, client.ErrCancelled):
		n.Cancelled++
	default:
		n.Failed++
	}
}

// bad returns how many jobs ended without a result.
func (n *endings) bad() int { return n.Poison + n.Cancelled + n.Failed }

func enqueuedLine(r client.PutResult, dryRun bool) line {
	l := line{ID: r.ID, Status: "enqueued", Where: r.Where, Record: r.Found, Warning: r.Warning}
	if r.Delay > 0 {
		l.Delay = r.Delay.String()
	}
	if dryRun {
		l.DryRun, l.Kind, l.Bytes = true, r.Kind, &r.PayloadSize
		if r.NewID {
			l.ID = "" // the real run generates another one
		}
	}
	return l
}

func endedLine(o client.Outcome) line {
	l := line{ID: o.Job.ID, Status: string(o.Job.Status)}
	switch ended, ok := errors.AsType[*client.EndedError](o.Err); {
	case ok:
		l.Error = reason(ended)
	case o.Err != nil:
		l.Status, l.Error = "failed", azure.Explain(o.Err)
	default:
		l.Result, l.ResultBase64 = resultJSON(o.Result)
	}
	return l
}

// resultJSON returns a result as a JSON value, or as bytes if it is not text.
func resultJSON(result []byte) (value json.RawMessage, other []byte) {
	switch {
	case len(result) == 0:
		return nil, nil
	case !utf8.Valid(result):
		return nil, result
	case json.Valid(result):
		return result, nil
	}
	text, err := cli.JSONLine(string(result))
	if err != nil {
		return nil, result
	}
	return text, nil
}

// printLine prints an object as a line of JSON.
func (r *report) printLine(v any) error {
	text, err := cli.JSONLine(v)
	if err != nil {
		return err
	}
	return r.screen.printOut(string(text))
}

// finish prints the JSON summary. It returns err, or the error of printing.
func (r *report) finish(err error) error {
	if !r.json {
		return err
	}
	if r.sum.Found != nil && *r.sum.Found == (found{}) {
		r.sum.Found = nil
	}
	r.sum.Seconds = time.Since(r.began).Round(time.Millisecond).Seconds()
	if err != nil {
		r.sum.Error = azure.Explain(err)
	}
	if lineErr := r.printLine(map[string]*summary{"summary": &r.sum}); err == nil {
		return lineErr
	}
	return err
}
