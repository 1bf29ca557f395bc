package producer

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// FuzzLines gives the producer arbitrary files of jobs: every line is a job that a
// worker reads as it was meant, or an error that names the line.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", `{"kind":"k"}`, `{"id":"a","kind":"k","payload":{"n":1}}` + "\n" + `{"kind":"k","payload_base64":"AAEC"}`,
		`{"id":"../a","kind":"k"}`, `{"id":"","kind":"k"}`, `{"kind":"k","payload":1,"payload_base64":""}`,
		`{"kind":"k","deadline":"2026-01-31T09:30:00Z"}`,
		`{"kind":"k","deadline":"0000-01-01T00:00:00+23:59"}`, `{"kind":"k","deadline":"9999-12-31T23:59:59-23:59"}`,
		`{"kind":"k","max_run":"2562047h"}`, `{"kind":"k","estimate":"2562047h"}`,
		`{"kind":"k","estimate":"-1s","deadline":"2026-01-31T09:30:00"}`,
		`{"kind":"k","max_silence":"1ns"}`, `{"kind":"k","delay":"-1s"}`, `{"kind":"k","delay":"168h"}`, `{"kind":"k"} {"kind":"k"}`,
		`{"Kind":"k"}`,
		`{"kind":"k","payload":null}`, `{"kind":"k","payload":"\ud800"}`, `{"kind":"k","id":"a","id":"b"}`, "\uFEFF" + `{"kind":"k"}`,
		`{"kind":"k","unknown":1}`,
		`[`, `{"kind":"k","payload":[[[[[[[[]]]]]]]]}`, "{\"kind\":\"k\",\"payload\":\"\x00\"}", `{"kind":"k","payload":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for job, err := range jobs(Lines(bytes.NewReader(data), Spec{})) {
			if err != nil {
				if wrong, ok := errors.AsType[*JobError](err); !ok || wrong.Where == "" || wrong.Err.Error() == "" {
					t.Fatalf("error %#v does not say where", err)
				}
				continue
			}
			checkJob(t, job)
		}
	})
}

// checkJob demands that a worker reads the job that was put.
func checkJob(t *testing.T, j Job) {
	t.Helper()
	e := j.envelope
	e.EnqueuedAt = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	text, err := e.Encode()
	if _, ok := errors.AsType[*queue.TooLargeError](err); ok {
		return // its payload goes into a blob
	}
	if err != nil {
		t.Fatalf("job %+v cannot be put: %v", j, err)
	}
	got, err := queue.Decode(text)
	if err != nil || got.ID != j.ID() || got.Kind != j.Kind() || got.Payload.Hash() != e.Payload.Hash() ||
		!got.Deadline.Equal(e.Deadline) || got.MaxRun != e.MaxRun || got.MaxSilence != e.MaxSilence || got.Estimate != e.Estimate {
		t.Fatalf("job %+v was read as %+v, %v", j, got, err)
	}
}
