package worker

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/plaintext"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/presence"
)

// watch turns what the metadata service says into what the worker does. The
// watcher reports, preempt.Decide judges, events.go carries it out, and
// acknowledge.go answers; this is the wire between them.
type watch struct {
	worker    *Worker
	departure *drain.Departure
	known     chan struct{} // closed when the identity is known
	decided   chan struct{} // closed when the first document was judged
	progress  chan struct{} // holds one: an acknowledgement may be due

	mu                    sync.Mutex
	identity              preempt.Identity
	nameless              bool              // the metadata service did not say this VM's name when it was asked
	document              *preempt.Document // the last one; nil before the first
	decision              preempt.Decision  // on that
	standing              bool              // a notice was given and not withdrawn
	left, ready, recorded readyList         // left for though there was time; done for; written down
	waiting               map[string]string // by event id: whom its acknowledgement waits for, as last logged; the sender's alone
	saves                 map[impact]*saving
	announced             announced
	acknowledged          map[string]asking // by event id
}

func newWatch(w *Worker) *watch {
	watch := &watch{
		worker: w, known: make(chan struct{}), decided: make(chan struct{}), progress: make(chan struct{}, 1),
		saves: map[impact]*saving{}, acknowledged: map[string]asking{}, waiting: map[string]string{},
	}
	watch.departure = drain.NewDeparture()
	watch.identity.Name = w.VMName
	return watch
}

// run polls from the first moment, and finds out this VM's name meanwhile,
// until ctx ends.
func (w *watch) run(ctx context.Context) {
	client := w.worker.Metadata
	if client == nil {
		return
	}
	defer client.Close()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { w.poll(ctx, client) })
	all.Go(func() { w.discover(ctx, client) })
	all.Go(func() { w.sendAcknowledgements(ctx, client) })
}

// poll runs the watcher.
func (w *watch) poll(ctx context.Context, client *preempt.Client) {
	loop := w.worker.loops.watch
	defer loop.Rest()
	watcher := preempt.NewWatcher(client)
	watcher.Trace = preempt.Trace{
		Turned: func(now time.Time, within time.Duration) { loop.Turn(now, within+briefTurn) },
		Polled: func(at time.Time, result preempt.PollResult) { w.worker.Observer.Polled(at, string(result)) },
	}
	watcher.Run(ctx, w.observe)
}

func (w *watch) discover(ctx context.Context, client *preempt.Client) {
	told := false
	identity, err := client.Discover(ctx, func(err error) {
		if !told {
			w.worker.Log.WarnContext(ctx, "metadata service does not say what this VM is; trying again. Without --vm-name an eviction cannot be recognised", "error", err, "vm_name", w.worker.VMName)
		}
		told = true
		w.mu.Lock()
		defer w.mu.Unlock()
		w.nameless = true
		w.decide()
	})
	if err != nil {
		return // ctx ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if given := w.worker.VMName; given != "" && !strings.EqualFold(given, identity.Name) {
		w.worker.Log.WarnContext(ctx, "metadata service has another name for this VM than --vm-name, which counts", "vm_name", given, "vm", identity.Name)
	}
	w.identity = identity
	w.identity.Name = cmp.Or(w.worker.VMName, identity.Name)
	close(w.known)
	w.worker.Log.InfoContext(ctx, "name of this VM is known", "vm", w.identity.Name, "scale_set", identity.ScaleSet, "priority", identity.Priority)
	w.decide()
}

// observe is called by the watcher; it must not block.
func (w *watch) observe(o preempt.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worker.Observer.Blind(o.BlindSince)
	w.worker.losses.blind(o.BlindSince)
	switch {
	case o.Changed:
		w.document = &o.Document
		w.decide()
	case o.Blind():
		w.worker.Log.Warn("metadata service gives no answer; an eviction would come without notice", "since", o.BlindSince, "error", o.Err)
	default:
		w.worker.Log.Info("metadata service answers again")
	}
}

// decide decides on the last document. The caller holds mu.
func (w *watch) decide() {
	if w.document == nil {
		return
	}
	now := time.Now()
	decision := preempt.Decide(*w.document, w.identity, w.document.Now(now))
	switch {
	case w.identity.Name == "" && w.nameless:
		w.decideWithoutName(decision)
		return
	case w.identity.Name == "":
		return // it was asked for only now; discover decides when it is answered
	}
	for _, v := range decision.Verdicts {
		w.worker.Log.Info("scheduled event names this VM", append(eventAttributes(v),
			"acknowledge", v.Acknowledge && w.worker.Acknowledge.allows(v.Event, w.identity), "reason", v.Reason)...)
	}
	w.publishEvent(decision, now)
	w.announced.report(w.worker.Observer, decision.Verdicts)
	w.decision = decision
	w.forgetOver()
	w.carryOut(decision, now)
	w.madeProgress()
	select {
	case <-w.decided:
	default:
		close(w.decided)
	}
}

// decideWithoutName saves every job when an eviction is announced that may be that
// of this VM. The caller holds mu.
func (w *watch) decideWithoutName(d preempt.Decision) {
	for _, v := range d.Verdicts {
		if w.saves[impactOf(v.Event)] == nil {
			w.worker.Observer.Unrecognised()
			w.worker.Log.Warn("eviction is announced, perhaps of this VM, whose name is not known: every job is saved; set --vm-name", eventAttributes(v)...)
		}
	}
	w.forgetOver()
	w.checkpoint(d)
}

// eventAttributes are what a line of the log says of an event. The service's free
// text is cut and made printable.
func eventAttributes(v preempt.Verdict) []any {
	e := v.Event
	return []any{
		"event_id", plainly(e.ID), "type", plainly(e.Type), "status", plainly(e.Status), "not_before", e.NotBefore, "source", plainly(e.Source),
		"duration", durationText(e.Duration), "description", plainly(e.Description), "action", v.Action.String(),
	}
}

// maxEventText bounds a text of an event in the log, in characters.
const maxEventText = 200

// plainly returns a text of the service as one printable line of bounded length.
func plainly(text string) string {
	runes := []rune(plaintext.Line(text))
	return string(runes[:min(len(runes), maxEventText)])
}

// durationText is how long an event's interruption lasts, in words.
func durationText(d time.Duration) string {
	if d == preempt.UnknownDuration {
		return "unknown"
	}
	return d.String()
}

// publishEvent keeps the most urgent event for the heartbeat: where a VM is deleted
// with its log, the heartbeat is what is left. The caller holds mu.
func (w *watch) publishEvent(d preempt.Decision, now time.Time) {
	if len(d.Verdicts) == 0 {
		return
	}
	e := d.Verdicts[0].Event
	w.worker.heartbeat.keepEvent(presence.Event{
		ID: e.ID, Type: e.Type, Status: e.Status, Source: e.Source, NotBefore: e.NotBefore,
		Duration: durationText(e.Duration), Description: e.Description, Action: d.Action.String(), SeenAt: now,
	})
}

// waitFirst waits until it is known whether an event is announced already, at most
// for patience: the service's first answer may take two minutes.
func (w *watch) waitFirst(ctx context.Context, patience time.Duration) {
	if w.worker.Metadata != nil {
		waitFor(ctx, w.decided, patience)
	}
}

// vm is the name of this VM, empty while it is not known.
func (w *watch) vm() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.identity.Name
}

// waitName waits for this VM's name, at most for patience. It returns what is known.
func (w *watch) waitName(ctx context.Context, patience time.Duration) preempt.Identity {
	waitFor(ctx, w.known, patience)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.identity
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
