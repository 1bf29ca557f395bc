package arm

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone reads nothing
}
