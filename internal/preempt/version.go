package preempt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Versions of the scheduled events interface. [EventsVersionAuto] asks for the
// newest and falls back.
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

// ValidateEventsVersion says what is wrong with a version of scheduled events,
// or returns nil: it is [EventsVersionAuto] or a date such as 2020-07-01.
func ValidateEventsVersion(version string) error {
	if _, err := time.Parse(time.DateOnly, version); err != nil && version != EventsVersionAuto {
		return fmt.Errorf("%q is no api-version: give %s or a date such as %s", version, EventsVersionAuto, generalEvents)
	}
	return nil
}

// WithEventsVersion asks for scheduled events in one version only, which should
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

func (v *eventsVersion) use() string { return v.current.Load().(string) }

// EventsVersion returns the api-version of scheduled events in use. After a
// fallback it is the older one.
func (c *Client) EventsVersion() string { return c.version.use() }

// askEvents sends a request about scheduled events. Where the newest version is
// refused, the same question is asked in the older one, and if that is answered
// it is asked in no other from then on. A refusal that has another reason, as
// the 404 of a service that is being updated, shows in both and changes nothing.
func (c *Client) askEvents(ctx context.Context, u Urgency, method string, body []byte) (answer, error) {
	version := c.version.use()
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

// isUnsupported reports whether the service may have refused for the version:
// 404 as seen in the field for a preview that is not served, or the 400 that
// instance metadata documents for a version it does not know.
func isUnsupported(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Status == http.StatusNotFound || status.Status == http.StatusBadRequest)
}
