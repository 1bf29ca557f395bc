package preempt

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Versions of the scheduled events interface.
const (
	// newestEvents adds SpotRebalanceRecommendation. It is a preview: where it
	// is not served the answer is 404 (openshift/machine-api-provider-azure).
	newestEvents = "2024-07-09"

	// generalEvents is generally available in all regions.
	generalEvents = "2020-07-01"
)

// eventsPath is where scheduled events are read and acknowledged.
const eventsPath = "/metadata/scheduledevents"

// newestAgainEvery is the time between two additional polls in the newest version while
// the older one is in use.
const newestAgainEvery = 5 * time.Minute

// eventsVersion is the version in use, and the other one for when that does not answer.
// It is safe for concurrent use.
type eventsVersion struct {
	newest, older string // older is empty in tests of one version

	mu          sync.Mutex
	current     string
	asked       string    // by the last poll
	newestAgain time.Time // when to ask the newest version again, if current is the older one
}

func (v *eventsVersion) set(newest, older string) {
	v.newest, v.older = newest, older
	v.current, v.asked = newest, newest
}

func (v *eventsVersion) get() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current
}

// other returns the version to try when the given one fails.
func (v *eventsVersion) other(version string) string {
	if v.older == "" || version == v.older {
		return v.newest
	}
	return v.older
}

// forPoll returns the version to poll in: the one in use. While that is in doubt, both
// take turns, because one may fail where the other works.
func (v *eventsVersion) forPoll(inDoubt bool) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if inDoubt {
		v.asked = v.other(v.asked)
	} else {
		v.asked = v.current
	}
	return v.asked
}

// triesNewest reports whether an additional poll in the newest version is due at now. It
// counts as sent then.
func (v *eventsVersion) triesNewest(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current == v.newest || now.Before(v.newestAgain) {
		return false
	}
	v.newestAgain = now.Add(newestAgainEvery)
	return true
}

// use makes version the one in use from now on.
func (v *eventsVersion) use(version string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != version {
		v.current, v.newestAgain = version, now.Add(newestAgainEvery)
	}
}

// askEvents sends a request about scheduled events. If the service refuses the newest
// version, it repeats the request in the older one, and keeps to that once it has
// succeeded. A refusal for another reason, such as the 404 of a service that is being
// updated, affects both versions and changes nothing. It returns the version that was
// asked last.
func (c *Client) askEvents(ctx context.Context, u Urgency, method, version string, body []byte) (answer, string, error) {
	a, err := c.ask(ctx, u, method, eventsPath, version, body)
	if c.version.older == "" || version == c.version.older || !isUnsupported(err) {
		return a, version, err
	}
	older, err := c.ask(ctx, u, method, eventsPath, c.version.older, body)
	if err != nil {
		return answer{}, c.version.older, err
	}
	c.version.use(c.version.older, time.Now())
	return older, c.version.older, nil
}

// isUnsupported reports whether the service may have refused the version: with 404, as
// observed for a preview that is not available, or with the 400 that instance metadata
// documents for an unknown version.
func isUnsupported(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Status == http.StatusNotFound || status.Status == http.StatusBadRequest)
}
