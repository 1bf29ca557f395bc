package preempt

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The VM's clock may have any time: only differences on it count.
func TestNowIsTheServicesClock(t *testing.T) {
	local := time.Date(2019, 5, 5, 5, 5, 5, 0, time.UTC)
	doc := Document{Date: noon, ReceivedAt: local}
	for _, passed := range []time.Duration{0, 300 * time.Millisecond, 4 * time.Second} {
		want := noon.Add(passed + time.Second) // a Date may be up to a second old
		if got := doc.Now(local.Add(passed)); !got.Equal(want) {
			t.Errorf("service's clock %s after the answer = %s, want %s", passed, got, want)
		}
	}
	for _, doc := range []Document{{}, {ReceivedAt: local}, {Date: noon}} {
		if got := doc.Now(local); !got.Equal(local) {
			t.Errorf("service's clock without Date and arrival = %s, want the local %s", got, local)
		}
	}
}

func TestParseDocument(t *testing.T) {
	full := Event{
		ID:          "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
		Type:        TypeFreeze,
		Status:      StatusScheduled,
		Resources:   []string{"WestNO_0", "WestNO_1"},
		NotBefore:   time.Date(2022, time.April, 11, 22, 26, 58, 0, time.UTC),
		Description: "Paused for a live migration.",
		Source:      SourcePlatform,
		Duration:    5 * time.Second,
	}
	tests := []struct {
		name string
		body string
		want Document
	}{
		{"no events", `{"DocumentIncarnation":1,"Events":[]}`,
			Document{Incarnation: "1", Events: []Event{}}},
		{"as documented", `{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123",
			"EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine",
			"Resources":["WestNO_0","WestNO_1"],"NotBefore":"Mon, 11 Apr 2022 22:26:58 GMT",
			"Description":"Paused for a live migration.","EventSource":"Platform","DurationInSeconds":5}]}`,
			Document{Incarnation: "2", Events: []Event{full}}},
		{"byte order mark", "\ufeff" + `{"DocumentIncarnation":1,"Events":[]}`,
			Document{Incarnation: "1", Events: []Event{}}},
		{"unknown fields", `{"Version":"x","DocumentIncarnation":1,"Events":[{"EventId":"1","Future":{"a":[1]}}]}`,
			Document{Incarnation: "1", Events: []Event{{ID: "1", Duration: UnknownDuration}}}},
		{"no incarnation", `{"Events":[{"EventId":"1"}]}`,
			Document{Events: []Event{{ID: "1", Duration: UnknownDuration}}}},
		{"incarnation is text", `{"DocumentIncarnation":"7","Events":[]}`,
			Document{Incarnation: "7", Events: []Event{}}},
		{"null for no events", `{"DocumentIncarnation":7,"Events":null}`,
			Document{Incarnation: "7", Events: []Event{}}},
		{"names and values in another case",
			`{"documentincarnation":1,"EVENTS":[{"eventid":"1","eventtype":"PREEMPT","eventstatus":"started","eventsource":"user"}]}`,
			Document{Incarnation: "1", Events: []Event{{
				ID: "1", Type: TypePreempt, Status: StatusStarted, Source: SourceUser, Duration: UnknownDuration}}}},
		{"unknown values", `{"DocumentIncarnation":1,"Events":[{"EventType":"Hibernate","EventStatus":"Advisory","EventSource":"Robot"}]}`,
			Document{Incarnation: "1", Events: []Event{{
				Type: "Hibernate", Status: "Advisory", Source: "Robot", Duration: UnknownDuration}}}},
		{"fields of the wrong kind", `{"DocumentIncarnation":{},"Events":[{"EventId":5,"EventType":["Preempt"],
			"EventStatus":null,"Resources":"a","NotBefore":17,"Description":{},"EventSource":true,"DurationInSeconds":"9"}]}`,
			Document{Events: []Event{{
				ID: "5", Resources: []string{"a"}, Source: "true", Duration: 9 * time.Second}}}},
		{"resources of the wrong kind", `{"Events":[{"Resources":{"a":1}},{"Resources":null},{"Resources":["a",null,7," b ",["c"]]}]}`,
			Document{Events: []Event{
				{Duration: UnknownDuration},
				{Duration: UnknownDuration},
				{Resources: []string{"a", "7", "b"}, Duration: UnknownDuration}}}},
		{"an odd entry hides no other", `{"Events":["x",null,7,[],{"EventType":"Preempt"}]}`,
			Document{Events: []Event{{Type: TypePreempt, Duration: UnknownDuration}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseDocument([]byte(tt.body))
			if err != nil {
				t.Fatalf("parseDocument: %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

// An answer that is no document must be an error: as "no events" it would hide an
// eviction.
func TestParseDocumentRefuses(t *testing.T) {
	for _, body := range []string{
		``, ` `, `null`, `[]`, `true`, `"Events"`, `{}`,
		`{"error":"Not found"}`,
		`{"DocumentIncarnation":1}`,
		`{"Events":null}`,
		`{"DocumentIncarnation":null,"Events":null}`,
		`{"DocumentIncarnation":"x","Events":null}`,
		`{"DocumentIncarnation":{},"Events":null}`,
		`{"DocumentIncarnation":1,"Events":{}}`,
		`{"DocumentIncarnation":1,"Events":"none"}`,
		`{"DocumentIncarnation":1,"Events":[]`,
		`{"DocumentIncarnation":1,"Events":[]}x`,
		`<html><title>Gateway Timeout</title></html>`,
	} {
		doc, err := parseDocument([]byte(body))
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("parseDocument(%s) = %+v, %v, want ErrMalformed", body, doc, err)
		}
	}
}

func TestParseErrorsDoNotQuoteTheAnswer(t *testing.T) {
	const secret = "hunter2"
	for _, body := range []string{
		secret,
		`{"Events":"` + secret + `"}`,
		`{"Events":[` + secret + `]}`,
		`{"` + secret + `":1}`,
	} {
		_, err := parseDocument([]byte(body))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("parseDocument(%s) = %v, want an error without the answer's text", body, err)
		}
	}
}

func TestParseTime(t *testing.T) {
	second := time.Date(2026, time.March, 9, 8, 7, 6, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"Mon, 09 Mar 2026 08:07:06 GMT":   second,
		"Mon, 9 Mar 2026 08:07:06 GMT":    second,
		"Mon,  9 Mar 2026 08:07:06 GMT":   second,
		"Mon, 09 Mar 2026 08:07:06 UTC":   second,
		"Mon, 09 Mar 2026 10:07:06 +0200": second,
		"2026-03-09T08:07:06Z":            second,
		"2026-03-09T09:07:06+01:00":       second,

		"":                              {},
		"soon":                          {},
		"1773043626":                    {},
		"Mon, 09 Mar 2026 08:07:06 EST": {}, // whose offset is unknown
		"Mon, 32 Mar 2026 08:07:06 GMT": {},
		"0001-01-01T00:00:00Z":          {},
	} {
		if got := parseTime(text); !got.Equal(want) || got.IsZero() != want.IsZero() {
			t.Errorf("parseTime(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestParseSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0":          0,
		"5":          5 * time.Second,
		"8.5":        8500 * time.Millisecond,
		"1000000000": 1000000000 * time.Second,

		"":           UnknownDuration,
		"-1":         UnknownDuration,
		"-0.5":       UnknownDuration,
		"9223372036": UnknownDuration,
		"1e300":      UnknownDuration,
		"Inf":        UnknownDuration,
		"NaN":        UnknownDuration,
		"long":       UnknownDuration,
	} {
		if got := parseSeconds(text); got != want {
			t.Errorf("parseSeconds(%q) = %d, want %d", text, got, want)
		}
	}
}
