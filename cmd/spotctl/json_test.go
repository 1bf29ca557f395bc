package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

var update = flag.Bool("update", false, "update the golden files")

// checkJSON compares the JSON output of a function with a file in testdata/json.
func checkJSON(t *testing.T, file string, write func(*printer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&printer{out: &out, err: &out, json: true}); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join("testdata", "json", file)
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("%s: output:\n%s\nwant:\n%s", file, &out, want)
	}
}

// noon has a zone, but the output is in UTC.
var noon = time.Date(2026, 3, 9, 13, 0, 0, 250e6, time.FixedZone("CET", 3600))

// fullJob has a value in every field.
func fullJob() client.Job {
	return client.Job{
		ID: "a", Kind: "resize", Status: client.StatusRunning, Fraction: 0.25, Text: "row <1> & \x00\u2028 of 4", Reason: "disk \"full\"",
		Owner: "vm-0", CreatedAt: noon.Add(-2 * time.Hour), ClaimedAt: noon.Add(-time.Hour), EndedAt: noon.Add(time.Hour),
		UpdatedAt: noon.Add(-1500 * time.Millisecond), ReadAt: noon, Deliveries: 7, Failures: 1, TotalFailures: 2, Interruptions: 3,
		UncleanExits: 4, RunTime: 90*time.Minute + 1234567*time.Microsecond,
		Cost: client.Cost{Useful: time.Hour, Redone: 61 * time.Second, Overhead: 1500 * time.Millisecond,
			Evictions: 2, UncleanExits: 1},
		Deadline: noon.Add(3 * time.Hour), Estimate: 4 * time.Hour, MoveReason: "behind <line>", StateSize: 1 << 40, StateVersion: 3,
		ResultSize: 99, OutputFiles: 6, OutputBytes: 1 << 33,
		WorkSHA256: "c0ffee",
	}
}

// The whole JSON form of outputs.
func TestOutputJSON(t *testing.T) {
	outputs := []client.Output{
		{Path: "a/1.txt", Size: 2, SHA256: "c0ffee", ContentType: "text/plain", Container: "outputs", Blob: "0a1/a/1-2/a/1.txt", ETag: "\"0x1\""},
		{Path: "b", Container: "outputs", Blob: "0a1/a/1-2/b", ETag: "\"0x2\""},
	}
	checkJSON(t, "outputs.jsonl", func(p *printer) error { return p.outputs(outputs) })
}

// The whole JSON form of jobs.
func TestJobJSON(t *testing.T) {
	jobs := []client.Job{
		fullJob(),
		{ID: "b", Status: client.StatusRunning, Fraction: 0.5, RunTime: time.Minute, UpdatedAt: noon, ReadAt: noon},
		{ID: "c", Kind: "k", Status: client.StatusDone, Fraction: 1, EndedAt: noon, UpdatedAt: noon, ReadAt: noon.Add(time.Second),
			Deadline: noon},
		{ID: "d", Status: client.StatusOpen, Fraction: 1e-7, RunTime: 1,
			Deadline: noon.Add(time.Hour), ReadAt: noon},
		{},
	}
	checkJSON(t, "jobs.jsonl", func(p *printer) error { return p.jobs(jobs) })
}

// The JSON form of the lines of a log, and of a job with the end of its log.
func TestLogJSON(t *testing.T) {
	lines := []client.LogLine{
		{LeftOut: 3},
		{Delivery: 1, Worker: "vm-0", Number: 4, At: noon, Source: "stdout", Text: "a <b> & c"},
		{Delivery: 1, Worker: "vm-0", Number: 5, At: noon, Source: "info"},
		{Delivery: 1, Worker: "vm-0", Number: 6, At: noon, Source: "stderr", Text: "\xff\x00"},
		{Delivery: 1, Worker: "vm-0", Number: 7, LeftOut: 2},
	}
	checkJSON(t, "logs.jsonl", func(p *printer) error {
		log := &logPrinter{printer: p}
		return log.print(lines)
	})
	checkJSON(t, "job.jsonl", func(p *printer) error {
		return p.job(client.Log{Job: fullJob(), Lines: lines}, "a worker", client.PayloadStart{Start: []byte(`{"n":1}`), Size: 7})
	})
	checkJSON(t, "job-without-log.jsonl", func(p *printer) error {
		return p.job(client.Log{Job: client.Job{ID: "a"}}, "", client.PayloadStart{Size: -1})
	})
}

// The JSON form of messages on the poison queue.
func TestPoisonJSON(t *testing.T) {
	full := client.PoisonMessage{MessageID: "m1", OriginalID: "o1", JobID: "a", Kind: "resize", Reason: "no <file>", Worker: "vm-0",
		Queue: "spotworker-jobs", GivenUpAt: noon, InsertedAt: noon.Add(time.Second)}
	foreign := client.PoisonMessage{MessageID: "m2", InsertedAt: noon, Err: errors.New("not an <envelope>")}
	checkJSON(t, "poison-list.jsonl", func(p *printer) error { return p.poisonList([]client.PoisonMessage{full, foreign, {}}) })
	checkJSON(t, "poison-show.jsonl", func(p *printer) error {
		return p.show(full, client.PoisonDetails{Text: `{"id":"<a>"}`, Job: new(fullJob())})
	})
	checkJSON(t, "poison-show-foreign.jsonl", func(p *printer) error { return p.show(foreign, client.PoisonDetails{}) })
}

// The JSON form of workers.
func TestWorkerJSON(t *testing.T) {
	full := client.Worker{Name: "vm-0", VM: "vm", State: "process", Version: "v1", StartedAt: noon, Age: 1500 * time.Millisecond,
		Asked: "kinds", Queues: []string{"q"}, Kinds: []string{"k", "<l>"}, Jobs: 2, JobIDs: []string{"a", "b"},
		LastEvent: &client.Event{ID: "e", Type: "Preempt", Status: "Started", NotBefore: noon, Description: "d", Action: "drain", SeenAt: noon},
		LastDrain: &client.Drain{Reason: "evicted", EndedAt: noon, Took: 12500 * time.Millisecond, Budget: time.Minute, Jobs: 4, Done: 1,
			Released: 2, LeftOut: 3, Left: 5},
		Activity: &client.Activity{Slots: 1}}
	ended := client.Worker{Name: "vm-1", State: "stopped", LastEvent: &client.Event{}, LastDrain: &client.Drain{}}
	silent := client.Worker{Name: "vm-2", Age: 30 * time.Minute}
	for _, w := range []client.Worker{full, ended, silent} {
		checkJSON(t, "worker-"+w.Name+".jsonl", func(p *printer) error { return p.line(w) })
	}
}
