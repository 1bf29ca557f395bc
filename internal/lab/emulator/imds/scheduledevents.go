package imds

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// scheduledEvents answers the endpoint of that name.
func (g *Guest) scheduledEvents(ctx context.Context, c call) reply {
	if c.Method != http.MethodGet && c.Method != http.MethodPost {
		return *methodNotAllowed("GET, POST")
	}
	if bad := c.checkVersion(g.server.versionsOfEvents()); bad != nil {
		return *bad
	}
	g.awaitEnabled(ctx)
	if c.Method == http.MethodPost {
		return g.startRequests(c.body)
	}
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	doc, shown := g.group.document(c.Version, time.Now())
	r := jsonReply(http.StatusOK, doc)
	r.shows = shown
	return r
}

// startRequests carries out {"StartRequests":[{"EventId":"…"}]}: each event becomes
// Started for all its Resources, not just for the VM that asked. An event that
// has started already is fine, and an advice stays as it is. If an id is not of an event
// that this VM sees, or the body is malformed, the answer is 400 and nothing starts.
// Field names are case-sensitive.
func (g *Guest) startRequests(body []byte) reply {
	ids, ok := readStartRequests(body)
	if !ok {
		return *refuse(http.StatusBadRequest, "the body is no list of StartRequests")
	}
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	var events []*listed
	for _, id := range ids {
		e := g.visible(id)
		if e == nil {
			return *refuse(http.StatusBadRequest, "EventId is not that of a scheduled event")
		}
		events = append(events, e)
	}
	approved := reply{status: http.StatusOK}
	for _, e := range events {
		e.start(time.Now())
		approved.approves = append(approved.approves, e.ID)
	}
	return approved
}

// readStartRequests returns the ids in the body of an approval. Maps keep
// encoding/json from matching names without case.
func readStartRequests(body []byte) (ids []string, ok bool) {
	var approval map[string]json.RawMessage
	var requests []map[string]json.RawMessage
	if len(body) > maxBody || json.Unmarshal(body, &approval) != nil || json.Unmarshal(approval["StartRequests"], &requests) != nil {
		return nil, false
	}
	for _, request := range requests {
		var id string
		if json.Unmarshal(request["EventId"], &id) != nil {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, len(ids) > 0
}

// visible returns the event if this VM sees it.
func (g *Guest) visible(id string) *listed {
	e := g.server.event(id)
	if e == nil || !slices.Contains(e.groups, g.group) {
		return nil
	}
	return e
}

// idleAfter is how long without a call for events switches them off.
const idleAfter = 24 * time.Hour

// awaitEnabled waits until scheduled events are switched on, which the first
// request for them begins, and the first after a day without any.
func (g *Guest) awaitEnabled(ctx context.Context) {
	g.server.mu.Lock()
	now := time.Now()
	if now.Sub(g.group.askedAt) >= idleAfter {
		g.group.enabledAt = now.Add(g.server.options.FirstCallDelay)
	}
	g.group.askedAt = now
	left := g.group.enabledAt.Sub(now)
	g.server.mu.Unlock()
	wait(ctx, left)
}

// Event is a scheduled event: what [Server.Schedule] is given and, with the
// fields that the server sets, what [Server.Event] returns.
type Event struct {
	// ID is the event's GUID. Default: a new one, in upper case as on Azure.
	ID string

	// Type is Preempt, Terminate, Reboot, Redeploy, Freeze,
	// SpotRebalanceRecommendation, or any text.
	Type string

	// Resources names the VMs that the event is about.
	Resources []string

	// Status is Scheduled, Started or Advisory. Default: Scheduled. After a
	// hardware failure a Reboot is Started from the outset.
	Status string

	// NotBefore is when a Scheduled event starts unless it is acknowledged before. Default: now plus
	// the least notice of its type.
	NotBefore time.Time

	// Source is Platform or User. Default: Platform.
	Source string

	// Description is a sentence for people.
	Description string

	// Duration is how long the interruption will last; negative means not
	// known. A Preempt has none, so it always shows as not known.
	Duration time.Duration

	// ScheduledAt and StartedAt are when the event was first listed and when
	// it started; StartedAt is zero until it has. Set by the server.
	ScheduledAt time.Time
	StartedAt   time.Time
}

const (
	statusScheduled = "Scheduled"
	statusStarted   = "Started"
	statusAdvisory  = "Advisory"
	typePreempt     = "Preempt"
	typeTerminate   = "Terminate"
	typeRebalance   = "SpotRebalanceRecommendation"
)

// preemptNotice is how long before its NotBefore an eviction is announced: 30 s
// at most and on a best-effort basis, says the documentation.
const preemptNotice = 30 * time.Second

// leastNotice holds the documented least time from listing to NotBefore.
var leastNotice = map[string]time.Duration{
	typePreempt:   preemptNotice,
	typeTerminate: 5 * time.Minute,
	"Redeploy":    10 * time.Minute,
	"Reboot":      15 * time.Minute,
	"Freeze":      15 * time.Minute,
}

func (e Event) withDefaults(now time.Time) Event {
	e.ID = cmp.Or(e.ID, strings.ToUpper(uuid.NewString()))
	e.Status = cmp.Or(e.Status, statusScheduled)
	e.Source = cmp.Or(e.Source, "Platform")
	e.Resources = slices.Clone(e.Resources)
	e.ScheduledAt, e.StartedAt = now, time.Time{}
	if e.NotBefore.IsZero() {
		e.NotBefore = now.Add(leastNotice[e.Type])
	}
	if e.Status == statusStarted {
		e.StartedAt = now
	}
	return e
}

// startsBy reports whether a Scheduled event has reached its NotBefore. Other
// statuses, such as an advice, stay as they are.
func (e Event) startsBy(now time.Time) bool {
	return e.Status == statusScheduled && !now.Before(e.NotBefore)
}

// documentJSON and eventJSON have the fields in the order in which the real service
// writes them. Fields that an older version does not have are nil.
type documentJSON struct {
	DocumentIncarnation int
	Events              []eventJSON
}

type eventJSON struct {
	EventID           string `json:"EventId"`
	EventStatus       string
	EventType         string
	ResourceType      string
	Resources         []string
	NotBefore         string
	Description       *string `json:",omitempty"`
	EventSource       *string `json:",omitempty"`
	DurationInSeconds *int    `json:",omitempty"`
}

// eventsVersions are the generally available versions and, in the comments, their
// additions. Being dates, they compare as text.
var eventsVersions = []string{
	"2017-08-01",
	"2017-11-01", // Preempt
	"2019-01-01", // Terminate
	"2019-04-01", // Description
	"2019-08-01", // EventSource
	"2020-07-01", // DurationInSeconds
}

// previewVersion is not generally available; it adds SpotRebalanceRecommendation
// with status Advisory (openshift/machine-api-provider-azure).
const previewVersion = "2024-07-09"

// versionsOfEvents returns the versions in which s answers for events.
func (s *Server) versionsOfEvents() []string {
	if s.options.PreviewEvents {
		return append(slices.Clone(eventsVersions), previewVersion)
	}
	return eventsVersions
}

// shownIn reports whether version knows the event's type.
func (e Event) shownIn(version string) bool {
	switch e.Type {
	case typePreempt:
		return version >= "2017-11-01"
	case typeTerminate:
		return version >= "2019-01-01"
	case typeRebalance:
		return version >= previewVersion
	default:
		return true
	}
}

// json returns the event as version writes it. NotBefore is blank once started.
func (e Event) json(version string) eventJSON {
	j := eventJSON{
		EventID:      e.ID,
		EventStatus:  e.Status,
		EventType:    e.Type,
		ResourceType: "VirtualMachine",
		Resources:    append([]string{}, e.Resources...), // never null
	}
	if e.Status != statusStarted {
		j.NotBefore = e.NotBefore.UTC().Format(http.TimeFormat)
	}
	if version >= "2019-04-01" {
		j.Description = &e.Description
	}
	if version >= "2019-08-01" {
		j.EventSource = &e.Source
	}
	if version >= "2020-07-01" {
		j.DurationInSeconds = new(e.seconds())
	}
	return j
}

func (e Event) seconds() int {
	if e.Duration < 0 || e.Type == typePreempt {
		return -1
	}
	return int(e.Duration / time.Second)
}
