package stage

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// Operation is the kind of a call.
type Operation int

// Operations.
const (
	OtherCall Operation = iota
	RecordWrite
	MessagePut
	MessageClaim
	MessageUpdate
	MessageDelete
)

// Call is one request of a worker to the storage account.
type Call struct {
	Operation Operation
	vm        string
	job       string        // whose record it writes
	message   string        // that it updates or deletes
	hides     time.Duration // how long a claim or an update hides the message
	arrived   time.Time

	ifMatch, ifNoneMatch string
	header               http.Header
	body                 []byte
}

// service is a service of the storage account.
type service struct {
	base   *url.URL
	queues bool // or blobs
}

// readCall reads a request to a service.
func readCall(names azure.Names, s service, vm string, r *http.Request, body []byte) Call {
	c := Call{
		vm: vm, arrived: time.Now(), body: body, header: r.Header,
		ifMatch: r.Header.Get("If-Match"), ifNoneMatch: r.Header.Get("If-None-Match"),
	}
	// /account/container/hhh/id, /account/queue/messages[/id]
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(path) < 3 {
		return c
	}
	switch {
	case !s.queues && path[1] == names.Records && len(path) == 4 && r.Method == http.MethodPut && r.URL.Query().Get("comp") != "block":
		c.Operation, c.job = RecordWrite, path[3]
	case s.queues && (path[1] == names.Queue || path[1] == names.First) && path[2] == "messages":
		c.readMessageCall(r, path[3:])
	}
	return c
}

func (c *Call) readMessageCall(r *http.Request, id []string) {
	switch {
	case len(id) == 0 && r.Method == http.MethodPost:
		c.Operation = MessagePut
	case len(id) == 0 && r.Method == http.MethodGet && r.URL.Query().Get("peekonly") == "":
		c.Operation, c.hides = MessageClaim, hidden(r)
	case len(id) == 1 && r.Method == http.MethodPut:
		c.Operation, c.message, c.hides = MessageUpdate, id[0], hidden(r)
	case len(id) == 1 && r.Method == http.MethodDelete:
		c.Operation, c.message = MessageDelete, id[0]
	}
}

// hidden returns how long a call hides a message, 0 if it does not.
func hidden(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.URL.Query().Get("visibilitytimeout"))
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// metadata returns a value of the record that the call writes.
func (c *Call) metadata(key string) string { return c.header.Get("X-Ms-Meta-" + key) }

// progress returns how far the state in the call's body is: its steps, or its offset in a blob. It is
// -1 without a state.
func (c *Call) progress() int64 {
	var state struct{ Step, Offset *int64 }
	if c.metadata("statehash") == "" || json.Unmarshal(c.body, &state) != nil {
		return -1
	}
	switch {
	case state.Step != nil:
		return *state.Step
	case state.Offset != nil:
		return *state.Offset
	}
	return -1
}

// put returns the job whose message the call puts.
func (c *Call) put() (job string) {
	var message struct {
		Text string `xml:"MessageText"`
	}
	if xml.Unmarshal(c.body, &message) != nil { //nolint:gosec // of a worker on this machine
		return ""
	}
	envelope, _ := oracle.ReadMessage(message.Text)
	return envelope.ID
}

// namedMessage is a message in the reply to a claim or a put.
type namedMessage struct{ id, job string }

// readMessages returns the messages in the reply to a claim, or to a put, which leaves their text
// out.
func readMessages(body []byte) []namedMessage {
	var list struct {
		Messages []struct {
			ID   string `xml:"MessageId"`
			Text string `xml:"MessageText"`
		} `xml:"QueueMessage"`
	}
	if xml.Unmarshal(body, &list) != nil { //nolint:gosec // it comes from the storage of this run
		return nil
	}
	named := make([]namedMessage, 0, len(list.Messages))
	for _, m := range list.Messages {
		envelope, _ := oracle.ReadMessage(m.Text)
		named = append(named, namedMessage{id: m.ID, job: envelope.ID})
	}
	return named
}

// services returns the services in a connection string.
func services(connectionString string) ([]service, error) {
	named := map[string]string{}
	for part := range strings.SplitSeq(connectionString, ";") {
		if key, value, ok := strings.Cut(part, "="); ok {
			named[key] = value
		}
	}
	blobs, err := url.Parse(named["BlobEndpoint"])
	if err != nil {
		return nil, err
	}
	queues, err := url.Parse(named["QueueEndpoint"])
	if err != nil {
		return nil, err
	}
	return []service{{base: blobs}, {base: queues, queues: true}}, nil
}
