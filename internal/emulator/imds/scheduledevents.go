package imds

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
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

// startRequests obeys {"StartRequests":[{"EventId":"…"}]}: each event becomes
// Started for all its Resources, not just for the VM that asked. An event that
// has started already is fine, and an advice stays as it is. If any id is not one of an event that this VM
// sees, or the body is malformed, the answer is 400 and nothing starts. Names of
// fields count with their case.
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
