package vmshare

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

const (
	identityFile = "identity.json"

	// identityHolds is how long the workers that start use an identity. It is longer than the
	// start of all, and so short that a restarted worker learns of changes.
	identityHolds = time.Minute
)

// identity is the content of the file: the answer of the metadata service at an endpoint, and
// when it came, since boot.
type identity struct {
	Boot     string           `json:"boot"`
	Endpoint string           `json:"endpoint"`
	At       time.Duration    `json:"at"`
	VM       preempt.Identity `json:"vm"`
}

// Identity implements [preempt.Identities]: of workers that start at once, one sends the
// request, and the others wait for its answer. If that takes longer than a second, or the
// file cannot be used, each sends its own request.
func (d *Dir) Identity(ctx context.Context, endpoint string, ask preempt.AskIdentity) (preempt.Identity, error) {
	l, err := takeWithin(ctx, d.file(identityFile), lockTimeout)
	if err != nil {
		return ask(ctx)
	}
	defer l.release()
	var known identity
	now := d.Clock()
	if content, err := l.read(); err == nil && json.Unmarshal(content, &known) == nil && known.holds(d.Boot, endpoint, now) {
		return known.VM, nil
	}
	vm, err := ask(ctx)
	if err != nil {
		return vm, err
	}
	if content, err := json.Marshal(identity{Boot: d.Boot, Endpoint: endpoint, At: d.Clock(), VM: vm}); err == nil {
		l.write(content)
	}
	return vm, nil
}

func (i identity) holds(boot, endpoint string, now time.Duration) bool {
	age := now - i.At
	return i.VM.Name != "" && i.Boot == boot && i.Endpoint == endpoint && age >= 0 && age < identityHolds
}
