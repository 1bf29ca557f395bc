package preempt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Versions of the scheduled events interface. [EventsVersionAuto] is the newest one,
// with a fallback.
const (
	EventsVersionAuto = "auto"

	// newestEvents adds SpotRebalanceRecommendation. It is a preview: where it
	// is not served the answer is 404 (openshift/machine-api-provider-azure).
	newestEvents = "2024-07-09"

	// generalEvents is generally available in all regions.
	generalEvents = "2020-07-01"
)

// eventsPath is where scheduled events are read and acknowledged.
const eventsPath = "/metadata/scheduledevents"

// ValidateEventsVersion returns an error unless version is [EventsVersionAuto] or a
// date such as 2020-07-01.
func ValidateEventsVersion(version string) error {
	if _, err := time.Parse(time.DateOnly, version); err != nil && version != EventsVersionAuto {
		return fmt.Errorf("%q is not an api-version: give %s or a date such as %s", version, EventsVersionAuto, generalEvents)
	}
	return nil
}

// WithEventsVersion sets the only api-version of scheduled events to use. It should
// pass [ValidateEventsVersion]. The default is [EventsVersionAuto].
func WithEventsVersion(version string) Option {
	return func(c *Client) { c.version.set(version) }
}

// eventsVersion is the version in use, and the one to fall back to.
type eventsVersion struct {
	current atomic.Value // string
	older   string       // empty when there is none to fall back to
}

func (v *eventsVersion) set(version string) {
	v.older = ""
	if version == EventsVersionAuto {
		version, v.older = newestEvents, generalEvents
	}
	v.current.Store(version)
}

func (v *eventsVersion) get() string { return v.current.Load().(string) }

// askEvents sends a request about scheduled events. If the service refuses the newest
// version, it repeats the request in the older one, and keeps to that once it has
// succeeded. A refusal for another reason, such as the 404 of a service that is being
// updated, affects both versions and changes nothing.
func (c *Client) askEvents(ctx context.Context, u Urgency, method string, body []byte) (answer, error) {
	version := c.version.get()
	a, err := c.ask(ctx, u, method, eventsPath, version, body)
	if c.version.older == "" || version == c.version.older || !isUnsupported(err) {
		return a, err
	}
	older, olderErr := c.ask(ctx, u, method, eventsPath, c.version.older, body)
	if olderErr != nil {
		return answer{}, olderErr
	}
	c.version.current.Store(c.version.older)
	return older, nil
}

// isUnsupported reports whether the service may have refused the version: with 404, as
// observed for a preview that is not available, or with the 400 that instance metadata
// documents for an unknown version.
func isUnsupported(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Status == http.StatusNotFound || status.Status == http.StatusBadRequest)
}
