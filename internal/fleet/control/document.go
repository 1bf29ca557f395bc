package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the document that this package reads and writes.
const Version = 1

// Bounds of the document.
const (
	// MaxCancels is how many cancelled jobs a document names. Where there are more,
	// CheckAll says that every job may be one of them.
	MaxCancels = 1000

	// MaxDrains is how many workers a document can ask to drain by name, and
	// MaxQuarantines how many VMs it can quarantine.
	MaxDrains      = 1000
	MaxQuarantines = 1000

	// MaxPausedKinds is how many kinds can be paused.
	MaxPausedKinds = 100

	// CancelsKept is how long a cancelled job is named: long enough for every worker
	// that reads the document at all.
	CancelsKept = 10 * time.Minute

	// clockMargin is how much the clocks of the blob service and the queue service
	// may differ, with a wide margin.
	clockMargin = time.Minute

	// maxBody is how many bytes of a document are read at most: several times the bounds
	// above.
	maxBody = 1 << 20
)

// ErrNewer means that the document is of a version that this program does not know.
var ErrNewer = errors.New("the control document was written by a newer version of spotworker")

// Document holds the requests of operators to the workers of a deployment. The zero value
// has no request. docs/FORMATS.md has its wire form.
type Document struct {
	// Revision counts the changes, from 1.
	Revision int

	// Pause is when and by whom claiming was paused for all workers; nil if it is not.
	Pause *Mark

	// PausedKinds are kinds whose jobs are not started.
	PausedKinds map[string]Mark

	// DrainAll asks every worker to drain, and Drains the workers of those names.
	DrainAll *Mark
	Drains   map[string]Mark

	// Quarantine asks the workers on the VMs of those names to drain, also workers that
	// start there later.
	Quarantine map[string]Mark

	// Cancels are the jobs that were cancelled in the last minutes. If CheckAll is
	// set, more were cancelled up to then than a document can name.
	Cancels  []Cancel
	CheckAll time.Time

	// CheckBefore is when a job was cancelled last. A message that was put before
	// may be of a cancelled job.
	CheckBefore time.Time

	// unknown holds fields of newer versions, which are kept on a rewrite.
	unknown map[string]json.RawMessage
}

// Mark says when and by whom something was asked for.
type Mark struct {
	At     time.Time
	By     string
	Reason string

	// FinishBy is until when running jobs may end before a drain; zero drains at once.
	FinishBy time.Time

	unknown map[string]json.RawMessage
}

// Cancel is a job that was cancelled, and when, by the service's clock.
type Cancel struct {
	ID string
	At time.Time

	unknown map[string]json.RawMessage
}

// Drained returns why a worker is to drain; ok is false if it is not.
func (d *Document) Drained(worker string) (why Mark, ok bool) {
	if why, ok := d.Drains[worker]; ok {
		return why, true
	}
	if d.DrainAll != nil {
		return *d.DrainAll, true
	}
	return Mark{}, false
}

// Quarantined returns why the VM of a worker is quarantined; ok is false if it is not.
func (d *Document) Quarantined(worker string) (why Mark, ok bool) {
	for vm, why := range d.Quarantine {
		if IsOn(worker, vm) {
			return why, true
		}
	}
	return Mark{}, false
}

// IsOn reports whether a name belongs to a worker or its VM. A worker is called
// <vm>-<first 8 of vmId>-<instance>, or <host>-<instance> without a metadata service.
func IsOn(worker, name string) bool {
	return worker == name || strings.EqualFold(VMOf(worker), name)
}

// VMOf returns the VM, or the host, in a worker's name.
func VMOf(worker string) string {
	machine := worker[:max(strings.LastIndexByte(worker, '-'), 0)]
	const shortID = 8
	if i := strings.LastIndexByte(machine, '-'); i >= 0 && len(machine)-i-1 == shortID {
		machine = machine[:i]
	}
	return machine
}

// CancelledAt returns when the job may have been cancelled last; zero if the document
// does not say that it was.
func (d *Document) CancelledAt(id string) (at time.Time) {
	for _, c := range d.Cancels {
		if c.ID == id && c.At.After(at) {
			at = c.At
		}
	}
	if d.CheckAll.After(at) {
		at = d.CheckAll
	}
	return at
}

// MustCheck reports whether a message that was put at that time, by the service's
// clock, may be of a job that was cancelled before it was claimed for the first time.
func (d *Document) MustCheck(put time.Time) bool {
	return !d.CheckBefore.IsZero() && put.Before(d.CheckBefore.Add(clockMargin))
}

// AddCancels names jobs that are cancelled in their records as of now, and drops those
// named longer than [CancelsKept] ago.
func (d *Document) AddCancels(ids []string, now time.Time) {
	d.Cancels = slices.DeleteFunc(d.Cancels, func(c Cancel) bool {
		return now.Sub(c.At) > CancelsKept || slices.Contains(ids, c.ID) && len(ids) <= MaxCancels
	})
	if !d.CheckAll.IsZero() && now.Sub(d.CheckAll) > CancelsKept {
		d.CheckAll = time.Time{}
	}
	if now.After(d.CheckBefore) {
		d.CheckBefore = now
	}
	if len(d.Cancels)+len(ids) > MaxCancels {
		d.Cancels, d.CheckAll = nil, now
		return
	}
	for _, id := range ids {
		d.Cancels = append(d.Cancels, Cancel{ID: id, At: now})
	}
}

// wire is the JSON of a document.
type wire struct {
	V           int             `json:"v"`
	Revision    int             `json:"revision"`
	Pause       *Mark           `json:"pause,omitempty"`
	PausedKinds map[string]Mark `json:"paused_kinds,omitempty"`
	DrainAll    *Mark           `json:"drain_all,omitempty"`
	Drains      map[string]Mark `json:"drain,omitempty"`
	Quarantine  map[string]Mark `json:"quarantine,omitempty"`
	Cancels     []Cancel        `json:"cancels,omitempty"`
	CheckAll    time.Time       `json:"check_all,omitzero"`
	CheckBefore time.Time       `json:"check_before,omitzero"`
}

// documentFields are the names of wire's fields.
var documentFields = []string{"v", "revision", "pause", "paused_kinds", "drain_all", "drain", "quarantine", "cancels", "check_all",
	"check_before"}

type wireMark struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`

	FinishBy time.Time `json:"finish_by,omitzero"`
}

type wireCancel struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// UnmarshalJSON reads a document. The error wraps [ErrNewer] for one of a newer version.
func (d *Document) UnmarshalJSON(data []byte) error {
	var version struct{ V json.Number }
	if _, err := decode(data, &version, "v"); err != nil {
		return err
	}
	switch v, err := strconv.Atoi(version.V.String()); {
	case err != nil || v < 1:
		return fmt.Errorf("its version is %q", version.V)
	case v > Version:
		return fmt.Errorf("%w: its version is %d, this program knows %d", ErrNewer, v, Version)
	}
	var w wire
	unknown, err := decode(data, &w, documentFields...)
	if err != nil {
		return err
	}
	*d = Document{
		Revision: w.Revision, Pause: w.Pause, PausedKinds: w.PausedKinds,
		DrainAll: w.DrainAll, Drains: w.Drains, Quarantine: w.Quarantine,
		Cancels: w.Cancels, CheckAll: w.CheckAll, CheckBefore: w.CheckBefore, unknown: unknown,
	}
	return nil
}

// MarshalJSON writes the document, unknown fields included.
func (d Document) MarshalJSON() ([]byte, error) {
	return encode(wire{
		V: Version, Revision: d.Revision, Pause: d.Pause, PausedKinds: d.PausedKinds,
		DrainAll: d.DrainAll, Drains: d.Drains, Quarantine: d.Quarantine,
		Cancels: d.Cancels, CheckAll: d.CheckAll.UTC(), CheckBefore: d.CheckBefore.UTC(),
	}, d.unknown)
}

// UnmarshalJSON reads a mark.
func (m *Mark) UnmarshalJSON(data []byte) error {
	var w wireMark
	unknown, err := decode(data, &w, "at", "by", "reason", "finish_by")
	*m = Mark{At: w.At, By: w.By, Reason: w.Reason, FinishBy: w.FinishBy, unknown: unknown}
	return err
}

// MarshalJSON writes the mark, unknown fields included.
func (m Mark) MarshalJSON() ([]byte, error) {
	return encode(wireMark{At: m.At.UTC(), By: m.By, Reason: m.Reason, FinishBy: m.FinishBy.UTC()}, m.unknown)
}

// UnmarshalJSON reads a cancelled job.
func (c *Cancel) UnmarshalJSON(data []byte) error {
	var w wireCancel
	unknown, err := decode(data, &w, "id", "at")
	*c = Cancel{ID: w.ID, At: w.At, unknown: unknown}
	return err
}

// MarshalJSON writes the cancelled job, unknown fields included.
func (c Cancel) MarshalJSON() ([]byte, error) {
	return encode(wireCancel{ID: c.ID, At: c.At.UTC()}, c.unknown)
}

// decode reads those fields of an object into w, their names matched exactly, and
// returns the others.
func decode(data []byte, w any, names ...string) (unknown map[string]json.RawMessage, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	known := map[string]json.RawMessage{}
	for _, name := range names {
		if raw, ok := all[name]; ok {
			known[name] = raw
			delete(all, name)
		}
	}
	raw, err := json.Marshal(known)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		all = nil
	}
	return all, json.Unmarshal(raw, w)
}

// encode writes w with unknown fields beside its own.
func encode(w any, unknown map[string]json.RawMessage) ([]byte, error) {
	raw, err := json.Marshal(w)
	if err != nil || len(unknown) == 0 {
		return raw, err
	}
	all := maps.Clone(unknown)
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
