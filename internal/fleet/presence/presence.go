// Package presence stores the workers' heartbeats: one small blob per worker with the
// worker's state. One List call shows the whole fleet, and a worker that starts learns
// from its old heartbeat how its last run ended.
//
// A worker continues to work if its heartbeat cannot be written. Two things depend
// on heartbeats: acknowledging events that concern several VMs, and leaving a job
// to another worker that has a handler for its kind.
package presence

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// Version is the version of the heartbeat format.
const Version = 1

// Every is how often a worker writes its heartbeat.
const Every = 15 * time.Second

// SilentAfter is how old the heartbeat of a worker is that should have written another
// one. A worker that is not silent is alive, unless it wrote that it stopped.
const SilentAfter = 3 * Every

// callTimeout is the timeout of one call, including the SDK's retries.
const callTimeout = 5 * time.Second

// Presence is the heartbeat of one worker. docs/FORMATS.md has its wire form.
type Presence struct {
	// Worker is the worker's name, and the blob's.
	Worker string

	Machine

	// Program is the version of the worker's program.
	Program string

	// Ready are the scheduled events that this worker is ready for: it has saved or
	// handed over the jobs that they affect.
	Ready []Ready

	// State is the lifecycle state, as in "process".
	State string

	// StartedAt is when the process started; At is when this was written.
	StartedAt, At time.Time

	// LastEvent is the scheduled event that the worker handled last, and LastDrain
	// how the last drain ended; zero if there was none. They remain after a VM was
	// deleted together with its log.
	LastEvent Event
	LastDrain Drain

	// TakesFrom are the names of the queues from which the worker claims messages.
	TakesFrom []string

	// Kinds are the kinds for which the worker has handlers. They are written sorted, and cut if they take more than
	// maxKinds: a final [MoreKinds] then stands for the rest.
	Kinds []string

	// Offers are the first words of the needs of states that the worker meets, sorted, as
	// [OfferMeets] compares them. Empty for a worker whose kinds ask for none.
	Offers []string

	// GPUs is how many GPUs of the machine jobs can have.
	GPUs int

	// Steered says that the worker reads the requests of operators, and Control which
	// revision of the control document it follows; 0 if there is none. Asked is the
	// request that keeps it from claiming: [AskedQuarantine], [AskedDrain], [AskedPause],
	// [AskedKinds], or nothing.
	Steered bool
	Control int
	Asked   string

	// Depths identifies the resource for whose autoscale the worker publishes the depths of queues;
	// empty for none.
	Depths string

	// Activity is the worker's activity in the last ten minutes.
	Activity activity.Report

	// Findings are facts that an operator should know.
	Findings Findings

	// Jobs are the ids of the active jobs, at most 1,024. A listing has only their
	// number, Count.
	Jobs  []string
	Count int

	// LogEnd is the end of the worker's own log, after a drain: an eviction deletes the log with
	// its VM. A listing has none.
	LogEnd string

	// Running are the active jobs whose handlers run. A listing has none.
	Running []Running
}

// Machine is the machine of a worker. Each field is empty if it is not known.
type Machine struct {
	VM   string // its name, as in scheduled events
	Size string // of the VM, as in "Standard_D4as_v5"
	Zone string // the number of its availability zone

	// BootID identifies one boot of the machine.
	BootID string
}

// What operators can ask of a worker, as [Presence.Asked] has it.
const (
	AskedDrain = "drain"
	AskedPause = "pause"

	// AskedQuarantine is a drain of all workers of the VM.
	AskedQuarantine = "quarantine"

	// AskedKinds means that jobs of some kinds are not started.
	AskedKinds = "kinds"
)

// Holds reports whether a request of operators, as [Presence.Asked] has it, drains its worker.
func Holds(asked string) bool { return asked == AskedDrain || asked == AskedQuarantine }

// Store reads and writes the heartbeats of a deployment's workers.
type Store struct{ blobs blobs.Container }

// NewStore returns the store of the heartbeats in container c.
func NewStore(c *container.Client) *Store { return &Store{blobs.In(c).Within(callTimeout)} }

// Write replaces the worker's heartbeat.
func (s *Store) Write(ctx context.Context, p Presence) error {
	_, err := s.put(ctx, p, nil)
	return err
}

// Rewrite replaces the heartbeat that the worker wrote last, with that ETag; the first one has
// none. If another process wrote one under the same name since, it is returned as rival, and
// replaced by a heartbeat that names it.
func (s *Store) Rewrite(ctx context.Context, p Presence, last azcore.ETag) (etag azcore.ETag, rival *Listed, err error) {
	if last != "" {
		etag, err = s.put(ctx, p, blobs.Same(last))
		if !blobs.IsConflict(err) && !blobs.IsMissing(err) {
			return etag, nil, err
		}
		switch other, ok, err := s.Read(ctx, p.Worker); {
		case err != nil:
			return "", nil, err
		case ok && (!other.StartedAt.Equal(p.StartedAt.Truncate(time.Second)) || other.BootID != p.BootID):
			rival, p.Findings.Trouble.Rival = &other, other.origin()
		}
	}
	etag, err = s.put(ctx, p, nil)
	return etag, rival, err
}

// origin says where the process of a heartbeat runs.
func (p *Presence) origin() string {
	return strings.TrimSpace(p.VM + " since " + p.StartedAt.UTC().Format(time.RFC3339))
}

func (s *Store) put(ctx context.Context, p Presence, condition *blob.AccessConditions) (azcore.ETag, error) {
	p.Count = len(p.Jobs)
	body, err := p.body()
	if err != nil {
		return "", fmt.Errorf("encode presence of %s: %w", p.Worker, err)
	}
	etag, err := s.blobs.Put(ctx, p.Worker, body, blobs.Options{Metadata: p.metadata(), If: condition})
	if err != nil {
		return "", fmt.Errorf("write presence of %s: %w", p.Worker, err)
	}
	return etag, nil
}

// Read returns the heartbeat of the worker with that name; ok is false if there is
// none.
func (s *Store) Read(ctx context.Context, worker string) (p Listed, ok bool, err error) {
	b, body, err := s.blobs.Get(ctx, worker, maxBody)
	if blobs.IsMissing(err) {
		return Listed{}, false, nil
	}
	if err != nil {
		return Listed{}, false, fmt.Errorf("read presence of %s: %w", worker, err)
	}
	p = Listed{Presence: parse(worker, b.Metadata), Age: b.Age()}
	if err := p.readBody(body); err != nil {
		return Listed{}, false, fmt.Errorf("read presence of %s: %w", worker, err)
	}
	return p, true, nil
}

// metadata returns the fields that a listing shows. Values that may contain more
// than ASCII are percent-encoded, and empty ones left out.
func (p Presence) metadata() map[string]*string {
	values := map[string]string{
		"v":         strconv.Itoa(Version),
		"state":     p.State,
		"bootid":    url.PathEscape(p.BootID),
		"startedat": p.StartedAt.UTC().Format(time.RFC3339),
		"at":        p.At.UTC().Format(time.RFC3339),
		"program":   url.PathEscape(p.Program),
		"takesfrom": strings.Join(p.TakesFrom, ","),
		"kinds":     formatKinds(p.Kinds),
		"offers":    url.PathEscape(formatOffers(p.Offers)),
		"jobs":      strconv.Itoa(p.Count),
		"vm":        url.PathEscape(p.VM),
		"size":      url.PathEscape(p.Size),
		"zone":      url.PathEscape(p.Zone),
		"ready":     formatReady(p.Ready),
		"lastevent": p.LastEvent.format(),
		"lastdrain": p.LastDrain.format(),
		"asked":     p.Asked,
		"depths":    p.Depths,
		"slots":     p.Activity.FormatSlots(),
		"recent":    p.Activity.FormatKinds(),
		"lacks":     formatLacks(p.Findings.Lacks),
		"unlike":    formatLacks(p.Findings.Unlike),
		"toolarge":  formatLacks(p.Findings.TooLarge),
		"silent":    p.Findings.formatSilent(),
		"calls":     formatCalls(p.Findings.Calls),
		"queues":    formatReadings(p.Findings.Readings),
		"trouble":   p.Findings.Trouble.format(),
	}
	if p.GPUs > 0 {
		values["gpus"] = strconv.Itoa(p.GPUs)
	}
	if p.Steered {
		values["control"] = strconv.Itoa(p.Control)
	}
	leaveOut(values)
	out := make(map[string]*string, len(values))
	for key, value := range values {
		if value != "" {
			out[key] = &value
		}
	}
	return out
}

// maxMetadata is the limit on all keys and values together, in bytes: the service's, less a
// reserve.
const maxMetadata = 8<<10 - 256

// dispensable are the fields that a heartbeat may lack, the first one soonest: a worker without
// queues may take from any queue.
// The other fields have room in any case.
var dispensable = []string{"queues", "recent", "takesfrom", "lacks", "unlike", "toolarge", "lastevent"}

// leaveOut empties dispensable fields until all fit: a worker of many queues and kinds would
// otherwise look dead.
func leaveOut(values map[string]string) {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	for _, key := range dispensable {
		if size <= maxMetadata {
			return
		}
		size -= len(values[key])
		values[key] = ""
	}
}

// parse leaves out fields that it cannot read: a heartbeat of a newer version still has a
// name and perhaps a state.
func parse(worker string, metadata map[string]*string) Presence {
	values := map[string]string{}
	var ready, event, drain, trouble string // unescaped part by part
	for key, value := range metadata {
		switch key = strings.ToLower(key); {
		case value == nil:
		case key == "ready":
			ready = *value
		case key == "lastevent":
			event = *value
		case key == "lastdrain":
			drain = *value
		case key == "trouble":
			trouble = *value
		default:
			values[key], _ = url.PathUnescape(*value)
		}
	}
	p := Presence{Worker: worker, State: values["state"]}
	p.Machine = Machine{VM: values["vm"], Size: values["size"], Zone: values["zone"], BootID: values["bootid"]}
	p.Program, p.Depths = values["program"], values["depths"]
	if taken := values["takesfrom"]; taken != "" {
		p.TakesFrom = strings.Split(taken, ",")
	}
	if kinds := values["kinds"]; kinds != "" {
		p.Kinds = strings.Split(kinds, ",")
	}
	if offers := values["offers"]; offers != "" {
		p.Offers = strings.Split(offers, ",")
	}
	p.StartedAt, _ = time.Parse(time.RFC3339, values["startedat"])
	p.At, _ = time.Parse(time.RFC3339, values["at"])
	p.Count, _ = strconv.Atoi(values["jobs"])
	control, err := strconv.Atoi(values["control"])
	p.Steered, p.Control, p.Asked = err == nil, control, values["asked"]
	p.Ready = parseReady(ready)
	p.LastEvent, p.LastDrain = parseEvent(event), parseDrain(drain)
	p.Activity = activity.Parse(values["slots"], values["recent"])
	p.GPUs = parseCount(values["gpus"])
	p.Findings = Findings{Lacks: parseLacks(values["lacks"]), Unlike: parseLacks(values["unlike"]), TooLarge: parseLacks(values["toolarge"]),
		Calls: parseCalls(values["calls"]), Readings: parseReadings(values["queues"])}
	p.Findings.parseSilent(values["silent"])
	p.Findings.Trouble = parseTrouble(trouble)
	return p
}
