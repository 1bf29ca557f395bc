package imds

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	contentJSON = "application/json; charset=utf-8"
	contentText = "text/plain; charset=utf-8"
)

// reply is an answer before it is sent.
type reply struct {
	status      int
	contentType string
	body        []byte
	allow       string   // the Allow header of a 405
	location    string   // where a redirect leads
	shows       []Event  // the events in the body
	approves    []string // ids of the events that a StartRequests let go ahead
	problem     string   // of a refusal, as in its body
	faulty      bool     // a fault stands in place of the real answer
}

// write sends the reply with made as its Date.
func (r reply) write(w http.ResponseWriter, made time.Time) {
	header := w.Header()
	header.Set("Date", made.UTC().Format(http.TimeFormat))
	header.Set("Content-Length", strconv.Itoa(len(r.body)))
	if len(r.body) > 0 {
		header.Set("Content-Type", r.contentType)
	}
	if r.allow != "" {
		header.Set("Allow", r.allow)
	}
	if r.location != "" {
		header.Set("Location", r.location)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // the client may have gone
}

// jsonReply answers with v as the service writes JSON: on one line, with no
// character escaped that need not be.
func jsonReply(status int, v any) reply {
	var body strings.Builder
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(fmt.Sprintf("imds: encode an answer: %v", err)) // only our own types get here
	}
	return reply{status: status, contentType: contentJSON, body: []byte(strings.TrimSuffix(body.String(), "\n"))}
}

// errorJSON is the form of the service's error bodies.
type errorJSON struct {
	Error          string   `json:"error"`
	NewestVersions []string `json:"newest-versions,omitempty"`
}

func refuse(status int, format string, args ...any) *reply {
	problem := fmt.Sprintf(format, args...)
	r := jsonReply(status, errorJSON{Error: problem})
	r.problem = problem
	return &r
}

func methodNotAllowed(allow string) *reply {
	r := refuse(http.StatusMethodNotAllowed, "the method is not one of %s", allow)
	r.allow = allow
	return r
}
