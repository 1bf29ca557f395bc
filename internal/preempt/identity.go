package preempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Identity identifies this VM. Fields that do not apply are empty.
type Identity struct {
	// Name is the VM's name in events. It is not the host name.
	Name string

	// VMID is a GUID that stays the same for the life of the VM.
	VMID string

	// ScaleSet is the name of the scale set, empty for a single VM.
	ScaleSet string

	// ResourceID is the full Azure Resource Manager id.
	ResourceID string

	// Location is the region, such as westeurope.
	Location string

	// Zone is the availability zone, such as 1.
	Zone string

	// Size is the VM's size, such as Standard_D4as_v5.
	Size string

	// Priority is Spot, SpotPlus, Low or Regular.
	Priority string

	// EvictionPolicy is Deallocate or Delete, empty for a Regular VM.
	EvictionPolicy string
}

// Instance is the service's metadata of this VM.
type Instance struct {
	Identity

	// Tags are the tags of the VM resource.
	Tags map[string]string

	// UserData is the base64 text given when the VM was created. It often contains
	// passwords, so String and LogValue omit it, and the tags too.
	UserData string
}

// String returns the name and the id of the VM, and nothing that may be secret.
func (i Instance) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.VMID) }

// LogValue returns the identity alone.
func (i Instance) LogValue() slog.Value { return slog.AnyValue(i.Identity) }

// rawInstance has the field names of the compute document, whose values are strings,
// empty where they do not apply.
type rawInstance struct {
	Name           looseText
	VMID           looseText
	VMScaleSetName looseText
	ResourceID     looseText
	Location       looseText
	Zone           looseText
	VMSize         looseText
	Priority       looseText
	EvictionPolicy looseText
	UserData       looseText
	TagsList       json.RawMessage
}

func parseInstance(body []byte) (Instance, error) {
	var raw rawInstance
	if err := json.Unmarshal(trimBOM(body), &raw); err != nil {
		return Instance{}, fmt.Errorf("%w: %s", ErrMalformed, jsonProblem(err))
	}
	if raw.Name == "" {
		return Instance{}, fmt.Errorf("%w: it has no name", ErrMalformed)
	}
	instance := Instance{
		Identity: Identity{
			Name:           string(raw.Name),
			VMID:           string(raw.VMID),
			ScaleSet:       string(raw.VMScaleSetName),
			ResourceID:     string(raw.ResourceID),
			Location:       string(raw.Location),
			Zone:           string(raw.Zone),
			Size:           string(raw.VMSize),
			Priority:       string(raw.Priority),
			EvictionPolicy: string(raw.EvictionPolicy),
		},
		Tags:     parseTags(raw.TagsList),
		UserData: string(raw.UserData),
	}
	return instance, nil
}

// parseTags returns no tags if the list is malformed: the VM's name must not depend
// on it.
func parseTags(list json.RawMessage) map[string]string {
	var pairs []struct{ Name, Value looseText }
	if list == nil || json.Unmarshal(list, &pairs) != nil {
		return nil
	}
	tags := make(map[string]string, len(pairs))
	for _, p := range pairs {
		tags[string(p.Name)] = string(p.Value)
	}
	return tags
}

// Discovery shares the budget with the watcher, which goes first: with a second
// between attempts it sends one request in any second, and the watcher at most three.
// A timeout of one second has proved too short for this service
// (aks-node-termination-handler#73).
const (
	discoverTimeout    = 5 * time.Second
	discoverFirstRetry = time.Second
)

// Discover requests the identity of this VM until it succeeds or ctx ends, and then
// returns an error that wraps the cause of ctx. It calls failed, if it is not nil, after
// each failed attempt, and repeats the attempt within two seconds. If an attempt times
// out, another attempt that waits for minutes is in flight beside the next ones.
func (c *Client) Discover(ctx context.Context, failed func(error)) (Identity, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	attempts := make(chan attempt, 2) // room for both
	try := func(patient bool) {
		running.Go(func() { attempts <- c.tryIdentity(ctx, patient) })
	}
	var again <-chan time.Time
	last := errors.New("none has ended")
	patient := false // one is in flight
	try(patient)
	for failures := 0; ; {
		select {
		case a := <-attempts:
			switch {
			case a.err == nil:
				return a.identity, nil
			case ctx.Err() != nil:
			case a.patient:
				patient = false
			default:
				last = a.err
				failures++
				if failed != nil {
					failed(last)
				}
				if !patient && resultOf(last) == PollTimeout {
					patient = true
					try(patient)
				}
				again = time.After(max(discoverFirstRetry, retryDelay(failures, isThrottled(last))))
			}
		case <-again:
			try(false)
		case <-ctx.Done():
			return Identity{}, fmt.Errorf("discover the name of this VM: %w (last attempt: %w)",
				context.Cause(ctx), last)
		}
	}
}

// attempt is the result of one request for the metadata of this VM.
type attempt struct {
	identity Identity
	err      error
	patient  bool
}

// tryIdentity asks for the identity once. A patient attempt does not keep the other workers
// of the VM waiting.
func (c *Client) tryIdentity(ctx context.Context, patient bool) attempt {
	timeout := discoverTimeout
	if patient {
		timeout = patientTimeout
	}
	ask := func(ctx context.Context) (Identity, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		instance, err := c.Instance(ctx)
		return instance.Identity, err
	}
	if patient || c.shared == nil {
		identity, err := ask(ctx)
		return attempt{identity, err, patient}
	}
	identity, err := c.shared.Identity(ctx, c.base, ask)
	return attempt{identity, err, patient}
}

// AskIdentity sends one request for the identity of this VM.
type AskIdentity func(context.Context) (Identity, error)

// Identities shares the answer to one request among the workers of a VM.
type Identities interface {
	// Identity returns an answer of the service at endpoint that another worker of this VM
	// has just received, or calls ask once and returns its result.
	Identity(ctx context.Context, endpoint string, ask AskIdentity) (Identity, error)
}

// WithIdentities makes [Client.Discover] share answers. By default it always sends a request.
func WithIdentities(shared Identities) Option {
	return func(c *Client) { c.shared = shared }
}

// Names reports whether e is about the VM with this identity. No event names an
// identity that is still unknown.
//
// Resources are VM names in the form of the metadata service's compute/name:
// <scale set>_<instance number> for a VM of a Uniform scale set,
// <scale set>_<8 characters> for one of a Flexible set, the VM's name otherwise. The
// host name is none of these. Azure does not distinguish names by case, so case is
// ignored. The whole name has to match: set_1 is not set_10.
func (e Event) Names(self Identity) bool {
	if self.Name == "" {
		return false
	}
	for _, resource := range e.Resources {
		if strings.EqualFold(resource, self.Name) {
			return true
		}
	}
	return false
}
