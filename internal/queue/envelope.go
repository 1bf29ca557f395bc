package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// Version is the version of the envelopes that this package writes and reads.
const Version = 1

// Limits of a message, in bytes.
const (
	// MaxText is the service's limit on a message's text.
	MaxText = 64 << 10

	// maxJSON is the length that fits into MaxText as base64.
	maxJSON = MaxText / 4 * 3

	// putBackRoom is kept free by Encode, so that put_back_since and resume can be
	// added when the message is rewritten.
	putBackRoom = 128

	// maxBeside limits the JSON of all fields but the payload, so that an envelope
	// always fits once its payload is in a blob.
	maxBeside = 8 << 10

	// maxAgain is the largest Again, the largest number in a record.
	maxAgain = 1 << 53

	// MaxInputs limits the JSON of the inputs, which do not count as beside the payload.
	MaxInputs = 24 << 10
)

// Envelope is the content of a job's message. docs/FORMATS.md has its JSON.
type Envelope struct {
	// ID is the job's id and its idempotency key.
	ID string

	// Kind names the handler.
	Kind string

	// Payload is the job's input.
	Payload Payload

	// EnqueuedAt is when the producer first put the job, by its clock.
	EnqueuedAt time.Time

	// Deadline is when the job should be done; zero for none. It is passed to the
	// handler, and a job that may miss it moves to VMs of regular priority.
	Deadline time.Time

	// Estimate is how long the work takes on a VM that nothing interrupts, in whole
	// seconds; 0 if the producer does not know.
	Estimate time.Duration

	// MaxRun and MaxSilence limit the job in addition to the limits of its kind: its
	// run time over all deliveries, and the time between two reports. Whole seconds;
	// 0 is no limit.
	MaxRun, MaxSilence time.Duration

	// MaxFailures is how many failures in a row dead-letter the job, in addition to the
	// limit of its kind; 0 is that alone.
	MaxFailures int

	// Trace is a W3C traceparent, or empty. Decode leaves out an invalid one.
	Trace string

	// Inputs is the compact JSON array of the job's input files, which package inputs
	// reads; nil for none.
	Inputs json.RawMessage

	// ChosenID says that the producer's caller chose the id, so that it may have
	// been used before: even the first delivery creates the record before its
	// handler starts, which fails if there is one.
	ChosenID bool

	// Group is the group of jobs that the job belongs to; empty for none. The record of
	// such a job exists before its message, so Resume is set too.
	Group string

	// Resume says that the job may have a record already (it was moved or replayed),
	// so that even the first delivery reads it.
	Resume bool

	// Again is that of the job's record if the job's owner had it run again from scratch before
	// this message was put; 0 if not. A message with a smaller number than the record is obsolete.
	Again int

	// PutBackSince is when this message was first put back, by the service's clock;
	// zero if it never was.
	PutBackSince time.Time

	// unknown holds fields of newer versions, which are kept on a rewrite.
	unknown map[string]json.RawMessage
}

// envelopeJSON is the wire form. Pointers and omitempty distinguish absent from empty.
type envelopeJSON struct {
	V             int             `json:"v"`
	ID            string          `json:"id"`
	Kind          string          `json:"kind"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 *[]byte         `json:"payload_base64,omitempty"`
	PayloadRef    *Ref            `json:"payload_ref,omitempty"`
	EnqueuedAt    *time.Time      `json:"enqueued_at,omitempty"`
	Deadline      *time.Time      `json:"deadline,omitempty"`
	Estimate      wireSeconds     `json:"estimate,omitempty"`
	MaxRun        wireSeconds     `json:"max_run,omitempty"`
	MaxSilence    wireSeconds     `json:"max_silence,omitempty"`
	MaxFailures   int             `json:"max_failures,omitempty"`
	Trace         string          `json:"trace,omitempty"`
	ChosenID      bool            `json:"chosen_id,omitempty"`
	Group         string          `json:"group,omitempty"`
	Resume        bool            `json:"resume,omitempty"`
	Again         int             `json:"again,omitempty"`
	PutBackSince  *time.Time      `json:"put_back_since,omitempty"`
	Inputs        json.RawMessage `json:"inputs,omitempty"`
}

// TooLargeError says that an envelope does not fit into a message. Its payload must
// be stored in a blob: see [Payloads.Offload].
type TooLargeError struct {
	Size, Limit int // bytes of JSON
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message has %d bytes before base64; at most %d fit", e.Size, e.Limit)
}

// Encode returns the envelope as a message text: base64 of its JSON. The error
// is a [*TooLargeError] if it does not fit with room for a later put-back. Decode
// accepts every text that Encode returns.
func (e Envelope) Encode() (string, error) {
	if err := e.Validate(); err != nil {
		return "", fmt.Errorf("encode message of job %.*s: %w", jobid.MaxID, e.ID, err)
	}
	return e.encode(maxJSON - putBackRoom)
}

func (e Envelope) encode(limit int) (string, error) {
	raw, err := marshal(e.wire())
	if err != nil {
		return "", fmt.Errorf("encode message of job %s: %w", e.ID, err)
	}
	if len(e.unknown) > 0 {
		if raw, err = mergeUnknown(raw, e.unknown); err != nil {
			return "", fmt.Errorf("encode message of job %s: %w", e.ID, err)
		}
	}
	if len(raw) > limit {
		return "", &TooLargeError{Size: len(raw), Limit: limit}
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

// Validate returns why the envelope cannot be used, or nil. Fields that are added
// later do not count towards its size, so that a rewrite cannot make it invalid.
func (e Envelope) Validate() error { //nolint:cyclop // a list of fields
	if err := jobid.Validate(e.ID); err != nil {
		return err
	}
	if err := jobid.ValidateKind(e.Kind); err != nil {
		return err
	}
	if e.Group != "" {
		if err := jobid.ValidateGroup(e.Group); err != nil {
			return fmt.Errorf("field group: %w", err)
		}
	}
	if err := CheckLimit(e.MaxRun); err != nil {
		return fmt.Errorf("field max_run: %w", err)
	}
	if err := CheckLimit(e.MaxSilence); err != nil {
		return fmt.Errorf("field max_silence: %w", err)
	}
	if err := CheckEstimate(e.Estimate); err != nil {
		return fmt.Errorf("field estimate: %w", err)
	}
	if err := CheckFailures(e.MaxFailures); err != nil {
		return fmt.Errorf("field max_failures: %w", err)
	}
	if e.Again < 0 || e.Again > maxAgain {
		return fmt.Errorf("field again is %d; it must be 0 to %d", e.Again, maxAgain)
	}
	if _, err := e.PutBackSince.UTC().MarshalJSON(); err != nil {
		return err
	}
	if len(e.Inputs) > MaxInputs {
		return fmt.Errorf("field inputs has %d bytes; at most %d are allowed: name a prefix or a manifest in place of single blobs",
			len(e.Inputs), MaxInputs)
	}
	e.Payload, e.Inputs, e.Resume, e.PutBackSince = Payload{}, nil, false, time.Time{}
	_, err := e.encode(maxBeside)
	if tooLarge, ok := errors.AsType[*TooLargeError](err); ok {
		return fmt.Errorf("the fields beside the payload have %d bytes; at most %d are allowed", tooLarge.Size, tooLarge.Limit)
	}
	if err == nil && checkTrace(e.Trace) != nil {
		err = fmt.Errorf("field trace: %w", checkTrace(e.Trace))
	}
	return err
}

// Work returns the hash of the work that the envelope stands for, in lower-case hex: the
// payload's hash, for a job with inputs together with them. The job's record contains it,
// so that reuse of an id for other work is detected.
func (e Envelope) Work() string {
	if len(e.Inputs) == 0 {
		return e.Payload.Hash()
	}
	return hashOf(append([]byte(e.Payload.Hash()+"\n"), e.Inputs...))
}

func (e Envelope) wire() envelopeJSON {
	w := envelopeJSON{
		V: Version, ID: e.ID, Kind: e.Kind, MaxFailures: e.MaxFailures, Trace: e.Trace, ChosenID: e.ChosenID, Group: e.Group,
		Resume: e.Resume, Again: e.Again, EnqueuedAt: timeOrNil(e.EnqueuedAt), Deadline: timeOrNil(e.Deadline),
		PutBackSince: timeOrNil(e.PutBackSince),
		MaxRun:       wireSeconds(e.MaxRun), MaxSilence: wireSeconds(e.MaxSilence), Estimate: wireSeconds(e.Estimate), Inputs: e.Inputs,
	}
	switch {
	case e.Payload.ref != nil:
		w.PayloadRef = e.Payload.ref
	case e.Payload.isJSON:
		w.Payload = e.Payload.data
	case len(e.Payload.data) > 0:
		w.PayloadBase64 = &e.Payload.data
	}
	return w
}

// mergeUnknown adds fields that this version does not know. Known fields win.
func mergeUnknown(raw []byte, unknown map[string]json.RawMessage) ([]byte, error) {
	all := maps.Clone(unknown)
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	return marshal(all)
}

// marshal is json.Marshal without HTML escaping, so that a JSON payload has the same
// bytes, and the same hash, on both ends.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// MaxLimit is the largest limit that an envelope may set, some 30 years. A larger
// one is a typing error.
const MaxLimit = 1_000_000_000 * time.Second

// CheckLimit returns the fault of a job's MaxRun or MaxSilence, or nil.
func CheckLimit(limit time.Duration) error {
	if limit < 0 || limit > MaxLimit || limit%time.Second != 0 {
		return fmt.Errorf("%s is not a valid limit: give whole seconds, from 1s to %s, or 0 for none", limit, MaxLimit)
	}
	return nil
}

// MaxFailures is the largest limit of failures in a row that an envelope may set.
const MaxFailures = 1_000_000

// CheckFailures returns the fault of a job's MaxFailures, or nil.
func CheckFailures(n int) error {
	if n < 0 || n > MaxFailures {
		return fmt.Errorf("%d is not a valid limit of failures: give 1 to %d, or 0 for the limit of the kind", n, MaxFailures)
	}
	return nil
}

// CheckEstimate returns the fault of a job's Estimate, or nil.
func CheckEstimate(estimate time.Duration) error {
	if estimate < 0 || estimate > MaxLimit || estimate%time.Second != 0 {
		return fmt.Errorf("%s is not a valid estimate: give whole seconds of work, from 1s to %s, or 0 if it is not known", estimate, MaxLimit)
	}
	return nil
}

// traceForm is the form of a W3C traceparent. Versions after 00 may add fields.
var traceForm = lazyregexp.New(`^(00-` + traceIDs + `|(0[1-9a-f]|[1-9a-e][0-9a-f]|f[0-9a-e])-` + traceIDs + `(-[\x21-\x7e]{1,256})?)$`)

const traceIDs = `[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}`

// checkTrace returns the fault of a traceparent, or nil. An empty traceparent is none.
func checkTrace(trace string) error {
	if trace != "" && !traceForm().MatchString(trace) {
		return fmt.Errorf("%.80q is no W3C traceparent", trace)
	}
	return nil
}

// wireSeconds is a limit or an estimate on the wire: whole seconds as a JSON number.
type wireSeconds time.Duration

func (s wireSeconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(int64(time.Duration(s) / time.Second))
}

func (s *wireSeconds) UnmarshalJSON(raw []byte) error {
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	if n < 0 || n > int64(MaxLimit/time.Second) {
		return fmt.Errorf("%d is out of range: whole seconds, up to %d", n, int64(MaxLimit/time.Second))
	}
	*s = wireSeconds(time.Duration(n) * time.Second)
	return nil
}
