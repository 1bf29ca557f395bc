package arm

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/pages"
)

// refusal is an error answer of ARM.
type refusal struct {
	status        int
	code, message string
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// write sends the refusal in ARM's form for errors.
func (no *refusal) write(w http.ResponseWriter) {
	setRequestID(w)
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer error=%q", "invalid_token"))
	}
	writeJSON(w, no.status, map[string]any{"error": map[string]string{"code": no.code, "message": no.message}})
}

// setRequestID names the answer, as every answer of ARM is.
func setRequestID(w http.ResponseWriter) { w.Header().Set("x-ms-request-id", uuid.NewString()) }

// writePage answers with the page of a list that the call asks for.
func (s *Server) writePage(w http.ResponseWriter, r *http.Request, list []any) {
	query := r.URL.Query()
	part, next := pages.Part(&s.pages, list, query.Get("$skiptoken"), 0)
	answer := map[string]any{"value": part}
	if next != "" {
		query.Set("$skiptoken", next)
		answer["nextLink"] = base(r) + r.URL.Path + "?" + query.Encode()
	}
	setRequestID(w)
	writeJSON(w, http.StatusOK, answer)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone reads nothing
}
