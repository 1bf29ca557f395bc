package preempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrTooLarge is the error of an answer longer than any real one.
var ErrTooLarge = errors.New("answer too large")

// StatusError is an answer of the metadata service with a status other than
// 200. 404, 410, 429 and 5xx pass; the service asks for them to be repeated
// (410 for up to 70 s). A redirect is an error too: the service sends none, so
// it comes from something in between.
type StatusError struct {
	// Status is the HTTP status code.
	Status int

	// Message is the error text of the answer, cut to a line. May be empty.
	Message string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("metadata service answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// statusError reads the "error" field that the service's error answers have.
func statusError(status int, body []byte) *StatusError {
	var answer struct{ Error looseText }
	_ = json.Unmarshal(trimBOM(body), &answer) // no JSON, no message
	return &StatusError{Status: status, Message: oneLine(string(answer.Error))}
}

// oneLine makes foreign text fit for a log: printable, on one line, short.
func oneLine(text string) string {
	const most = 200
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(clean); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return clean
}

// isThrottled reports whether the service refused because of too many requests.
func isThrottled(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusTooManyRequests
}
