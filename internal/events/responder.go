package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Worker is the part of the worker that a [Responder] needs. Its methods are called while
// the Responder's lock is held, except WriteHeartbeat: they must not block, and must not
// call the Responder other than [Responder.Progressed].
type Worker interface {
	// Position returns the worker's lifecycle state and facts.
	Position() lifecycle.Position

	// Evict starts a drain for the notice.
	Evict(n preempt.Notice)

	// Hasten applies a further notice to the drain under way: it may leave less
	// time, never more.
	Hasten(n preempt.Notice)

	// Withdraw reports that no event calls for a drain now.
	Withdraw()

	// SaveAll asks every running job to save. It calls done, from another
	// goroutine, with how many there were and how many could not save.
	SaveAll(done func(jobs, unsaved int))

	// Blind reports since when the metadata service has been silent, and with the
	// zero time that it answers again.
	Blind(since time.Time)

	// RecordEvent keeps the most urgent event for the next heartbeat.
	RecordEvent(e presence.Event)

	// WriteHeartbeat writes a heartbeat, with the worker's ready events, before it
	// returns.
	WriteHeartbeat(ctx context.Context) error
}

// ResponderConfig has the settings and parts of a [Responder].
type ResponderConfig struct {
	Worker      Worker
	Client      *preempt.Client // the VM's metadata service; nil runs without events
	Departure   *drain.Departure
	Runtime     *vmshare.Dir    // shared by the workers of this VM; nil for the only one
	Presences   *presence.Store // the heartbeats of the workers of other VMs
	Acknowledge Acknowledge
	VMName      string // the VM's name in place of the metadata service's; may be empty
	Observe     observe.Observer
	Loop        *health.Loop      // of the polls
	OnVM        func(name string) // called when the metadata service has given the VM's name; optional
	Log         *slog.Logger
}

// pollSlack is how much later than planned a poll may come before the poll loop
// counts as stuck.
const pollSlack = 30 * time.Second

// Responder makes a worker respond to the scheduled events of its VM.
type Responder struct {
	ResponderConfig

	known    chan struct{} // closed when the identity is known
	decided  chan struct{} // closed after the first decision
	progress chan struct{} // holds one: an acknowledgement may be due

	waiting map[string]string // by event id: whom its acknowledgement waits for, as last logged; the acknowledging goroutine's alone

	mu           sync.Mutex // guards what follows
	identity     preempt.Identity
	nameless     bool                       // the metadata service was asked for this VM's name and did not give it
	document     *preempt.Document          // the last one; nil before the first
	decision     preempt.Decision           // on that
	blindSince   time.Time                  // when the metadata service answered last, if it does not; otherwise zero
	left         readyList                  // events that the worker drained for although there was time
	ready        readyList                  // events that the worker is ready for
	recorded     readyList                  // ready, as last recorded where others see it
	saved        map[impact]*bool           // whether all jobs were saved for an impact; nil before they were asked to
	reported     map[string]reported        // by event id
	acknowledged map[string]acknowledgement // by event id
	again        *time.Timer                // decides again while the VM's name is not known
}

// reported is the last report of an event: its log line and the action on it.
type reported struct {
	line   string
	action preempt.Action
}

// New returns a Responder, which does nothing before [Responder.Run].
func New(c ResponderConfig) *Responder {
	return &Responder{
		ResponderConfig: c, known: make(chan struct{}), decided: make(chan struct{}), progress: make(chan struct{}, 1),
		waiting: map[string]string{}, identity: preempt.Identity{Name: c.VMName},
		saved: map[impact]*bool{}, acknowledged: map[string]acknowledgement{},
	}
}

// Run polls the metadata service, asks it for the VM's name, and acknowledges
// events, until ctx ends.
func (r *Responder) Run(ctx context.Context) {
	if r.Client == nil {
		return
	}
	defer r.Client.Close()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.decideAgain(0)
	}()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { r.poll(ctx) })
	all.Go(func() { r.discover(ctx) })
	all.Go(func() { r.sendAcknowledgements(ctx) })
}

// poll runs the watcher.
func (r *Responder) poll(ctx context.Context) {
	defer r.Loop.Rest()
	watcher := preempt.NewWatcher(r.Client)
	watcher.Trace = preempt.Trace{
		Turned: func(now time.Time, within time.Duration) { r.Loop.Turn(now, within+pollSlack) },
		Polled: func(at time.Time, result preempt.PollResult) { r.Observe(observe.Polled{At: at, Result: result}) },
	}
	watcher.Run(ctx, r.observe)
}

// discover asks the metadata service for the VM's name until it answers.
func (r *Responder) discover(ctx context.Context) {
	logged := false
	identity, err := r.Client.Discover(ctx, func(err error) {
		if !logged {
			r.Log.WarnContext(ctx, "metadata service does not say what this VM is; trying again. Without --vm-name an eviction "+
				"cannot be recognised", "error", err, "vm_name", r.VMName)
		}
		logged = true
		r.mu.Lock()
		defer r.mu.Unlock()
		r.nameless = true
		r.decide()
	})
	if err != nil {
		return // ctx ended
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.VMName != "" && !strings.EqualFold(r.VMName, identity.Name) {
		r.Log.WarnContext(ctx, "metadata service has another name for this VM than --vm-name, which counts", "vm_name", r.VMName,
			"metadata_name", identity.Name)
	}
	r.identity = identity
	r.identity.Name = cmp.Or(r.VMName, identity.Name)
	close(r.known)
	if r.OnVM != nil {
		r.OnVM(r.identity.Name)
	}
	r.Log.InfoContext(ctx, "name of this VM is known", "vm_name", r.identity.Name, "scale_set", identity.ScaleSet, "priority",
		identity.Priority)
	r.decide()
}

// observe receives the watcher's observations. It must not block.
func (r *Responder) observe(o preempt.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Worker.Blind(o.BlindSince)
	r.logBlind(o)
	if o.Changed {
		r.document = &o.Document
		r.decide()
	}
}

// errUnanswered is why the watcher is blind if no poll has failed.
var errUnanswered = errors.New("the polls are sent and not answered")

// logBlind logs that the watcher became blind, or is so no more. The answer that ends
// its blindness may bring a changed document too. The caller holds mu.
func (r *Responder) logBlind(o preempt.Observation) {
	switch since := r.blindSince; {
	case o.Blind() && since.IsZero():
		err := cmp.Or(o.Err, errUnanswered)
		r.Log.Warn("metadata service is unavailable; an eviction would come without notice", "since", o.BlindSince, "error", err)
	case !o.Blind() && !since.IsZero():
		r.Log.Info("metadata service answers again", "after", o.At.Sub(since))
	}
	r.blindSince = o.BlindSince
}

// decide decides on the last document and carries the decision out. The caller
// holds mu.
func (r *Responder) decide() {
	if r.document == nil {
		return
	}
	now := time.Now()
	decision := preempt.Decide(*r.document, r.identity, r.document.Now(now))
	switch {
	case r.identity.Name == "" && r.nameless:
		r.decideWithoutName(decision, now)
		return
	case r.identity.Name == "":
		return // discover decides as soon as the name is known
	}
	r.report(decision.Verdicts)
	r.recordEvent(decision, now)
	r.decision = decision
	r.forgetUnlisted()
	r.carryOut(decision, now)
	r.Progressed()
	if !isClosed(r.decided) {
		close(r.decided)
	}
}

// report logs and counts new events that name this VM, and changed ones. The caller
// holds mu.
func (r *Responder) report(verdicts []preempt.Verdict) {
	before := r.reported
	r.reported = make(map[string]reported, len(verdicts))
	for _, v := range verdicts {
		attributes := append(eventAttributes(v), []any{"acknowledge", v.Acknowledge && r.Acknowledge.allows(v.Event, r.identity), "reason",
			v.Reason}...)
		was, known := before[v.Event.ID]
		now := reported{line: fmt.Sprint(attributes...), action: v.Action}
		r.reported[v.Event.ID] = now
		if now.line != was.line {
			r.Log.Info("scheduled event names this VM", attributes...)
		}
		if !known || now.action != was.action {
			r.Observe(observe.Announced{Type: knownType(v.Event.Type), Action: v.Action.String()})
		}
	}
}

// decideWithoutName saves every job when an event is announced that may be about this VM.
// The caller holds mu.
func (r *Responder) decideWithoutName(d preempt.Decision, now time.Time) {
	for _, v := range d.Verdicts {
		if r.saved[impactOf(v.Event)] == nil {
			r.Observe(observe.Unrecognised{})
			r.Log.Warn("event is announced, perhaps for this VM, whose name is not known: every job is saved; set --vm-name", eventAttributes(v)...)
		}
	}
	r.Departure.Set(d, now)
	r.forgetUnlisted()
	r.checkpoint(d)
	r.decideAgain(d.Again)
}

// decideAgain decides again on the last document after that time, unless it is zero.
// The caller holds mu.
func (r *Responder) decideAgain(after time.Duration) {
	if r.again != nil {
		r.again.Stop()
	}
	if after == 0 {
		return
	}
	r.again = time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.decide()
	})
}

// knownType returns the type of an event, or "other" for a type that this version does
// not know.
func knownType(kind string) string {
	switch kind {
	case preempt.TypePreempt, preempt.TypeTerminate, preempt.TypeReboot, preempt.TypeRedeploy, preempt.TypeFreeze, preempt.TypeRebalance:
		return kind
	default:
		return "other"
	}
}

// recordEvent keeps the most urgent event for the heartbeat: where a VM is deleted with
// its log, only the heartbeat remains.
func (r *Responder) recordEvent(d preempt.Decision, now time.Time) {
	if len(d.Verdicts) == 0 {
		return
	}
	e := d.Verdicts[0].Event
	r.Worker.RecordEvent(presence.Event{
		ID: e.ID, Type: e.Type, Status: e.Status, Source: e.Source, NotBefore: e.NotBefore,
		Duration: durationText(e.Duration), Description: e.Description, Action: d.Action.String(), SeenAt: now,
	})
}

// eventAttributes are the log attributes of an event. The service's free text is
// cut and made printable.
func eventAttributes(v preempt.Verdict) []any {
	e := v.Event
	return []any{
		"event_id", printable(e.ID), "event_type", printable(e.Type), "status", printable(e.Status), "not_before", e.NotBefore, "event_source",
		printable(e.Source),
		"duration", durationText(e.Duration), "description", printable(e.Description), "action", v.Action.String(),
	}
}

// MaxEventText bounds a text of an event in the log, in characters.
const MaxEventText = 200

// printable returns a text of the service as one printable line of bounded length.
func printable(text string) string {
	runes := []rune(plaintext.Line(text))
	return string(runes[:min(len(runes), MaxEventText)])
}

// durationText is the duration of an event's interruption.
func durationText(d time.Duration) string {
	if d == preempt.UnknownDuration {
		return "unknown"
	}
	return d.String()
}

// WaitDecided waits until the first document was decided on, at most for patience:
// the service's first answer may take two minutes.
func (r *Responder) WaitDecided(ctx context.Context, patience time.Duration) {
	if r.Client != nil {
		waitFor(ctx, r.decided, patience)
	}
}

// WaitIdentity waits until this VM's name is known, at most for patience. It returns the
// identity known then.
func (r *Responder) WaitIdentity(ctx context.Context, patience time.Duration) preempt.Identity {
	waitFor(ctx, r.known, patience)
	return r.Identity()
}

// Identity returns the facts of this VM that are known now; its name may be from a flag alone.
func (r *Responder) Identity() preempt.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.identity
}

// waitFor returns when done is closed, ctx ends, or patience is over.
func waitFor(ctx context.Context, done <-chan struct{}, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
