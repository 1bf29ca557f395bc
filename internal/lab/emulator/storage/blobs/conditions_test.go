package blobs

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

func TestConditions(t *testing.T) {
	modified := time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC)
	existing := &version{etag: `"0x1"`, modified: modified}
	const (
		same   = "Thu, 01 Jan 2026 12:00:00 GMT"
		before = "Thu, 01 Jan 2026 11:59:59 GMT"
	)
	tests := []struct {
		name        string
		header      []string
		version     *version
		read, write *protocol.Error
	}{
		{"none", nil, existing, nil, nil},
		{"none, no blob", nil, nil, errBlobNotFound, nil},
		{"match", []string{"If-Match", `"0x1"`}, existing, nil, nil},
		{"match of another", []string{"If-Match", `"0x2"`}, existing, protocol.ErrConditionNotMet, protocol.ErrConditionNotMet},
		{"match, no blob", []string{"If-Match", `"0x1"`}, nil, protocol.ErrConditionNotMet, protocol.ErrConditionNotMet},
		{"match any", []string{"If-Match", `*`}, existing, nil, nil},
		{"match any, no blob", []string{"If-Match", `*`}, nil, protocol.ErrConditionNotMet, protocol.ErrConditionNotMet},
		{"none match", []string{"If-None-Match", `"0x1"`}, existing, protocol.ErrNotModified, protocol.ErrConditionNotMet},
		{"none match of another", []string{"If-None-Match", `"0x2"`}, existing, nil, nil},
		{"none match, no blob", []string{"If-None-Match", `"0x1"`}, nil, errBlobNotFound, nil},
		{"none match any", []string{"If-None-Match", `*`}, existing, protocol.ErrUnsatisfiable, nil}, // a write that creates refuses it itself
		{"modified since before", []string{"If-Modified-Since", before}, existing, nil, nil},
		{"modified since the same second", []string{"If-Modified-Since", same}, existing, protocol.ErrNotModified, protocol.ErrConditionNotMet},
		{"unmodified since the same second", []string{"If-Unmodified-Since", same}, existing, nil, nil},
		{"unmodified since before", []string{"If-Unmodified-Since", before}, existing, protocol.ErrConditionNotMet, protocol.ErrConditionNotMet},
		{"unmodified since, no blob", []string{"If-Unmodified-Since", before}, nil, errBlobNotFound, nil},
		{"match and unmodified: a write looks at the tag", []string{"If-Match", `"0x1"`, "If-Unmodified-Since", before}, existing,
			protocol.ErrConditionNotMet, nil},
		{"none match or modified: one is enough to read", []string{"If-None-Match", `"0x1"`, "If-Modified-Since", before}, existing, nil,
			protocol.ErrConditionNotMet},
		{"match and none match", []string{"If-Match", `"0x1"`, "If-None-Match", `"0x2"`}, existing, nil, protocol.ErrMultipleConditions},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := make(http.Header)
			for i := 0; i+1 < len(tt.header); i += 2 {
				h.Set(tt.header[i], tt.header[i+1])
			}
			c, err := parseConditions(h)
			if err != nil {
				t.Fatalf("parseConditions: %v", err)
			}
			wantRefusal(t, "checkRead", c.checkRead(tt.version), tt.read)
			wantRefusal(t, "checkWrite", c.checkWrite(tt.version), tt.write)
		})
	}
}

func wantRefusal(t *testing.T, doing string, err error, want *protocol.Error) {
	t.Helper()
	if want == nil && err == nil {
		return
	}
	if got, _ := errors.AsType[*protocol.Error](err); got == nil || want == nil || got.Code != want.Code || got.Status != want.Status {
		t.Errorf("%s = %v, want %v", doing, err, want)
	}
}

func TestMalformedConditionsAreRefused(t *testing.T) {
	_, err := parseConditions(http.Header{"If-Modified-Since": {"yesterday"}})
	wantRefusal(t, "parseConditions of a bad date", err, protocol.ErrInvalidHeader)
	_, err = parseConditions(http.Header{"If-Match": {`"0x1", "0x2"`}})
	wantRefusal(t, "parseConditions of two tags", err, protocol.ErrMultipleConditions)
	for _, key := range []string{"If-Match", "If-None-Match"} {
		for _, tag := range []string{`0x1`, `"0x1`, `0x1"`, `"`, `W/"0x1"`, `"0"x1"`} {
			_, err = parseConditions(http.Header{key: {tag}})
			wantRefusal(t, "parseConditions of "+key+" "+tag, err, protocol.ErrInvalidHeader)
		}
	}
}
