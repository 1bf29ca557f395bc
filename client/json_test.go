package client

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// at returns a time in the zone of an operator: JSON has it in UTC.
func at(second int) time.Time {
	return time.Date(2026, 3, 9, 13, 0, second, 0, time.FixedZone("", 3600))
}

// TestJSON: each value has all its fields, in order, with times in UTC and durations in seconds.
func TestJSON(t *testing.T) {
	full := Job{ID: "j", Kind: "<k>", Status: StatusRunning, Fraction: 0.5, Text: "half", Reason: "why", Owner: "w",
		CreatedAt: at(1), ClaimedAt: at(2), EndedAt: at(3), UpdatedAt: at(4), ReadAt: at(14), Deliveries: 2, Failures: 3, TotalFailures: 4,
		Interruptions: 5, UncleanExits: 6, RunTime: 90 * time.Second, Deadline: at(50), Estimate: 200 * time.Second, MoveReason: "late",
		StateSize: 7, HandOver: 1500 * time.Millisecond, ResultSize: 9,
		OutputFiles: 10, OutputBytes: 11, WorkSHA256: "ab",
		Cost: Cost{Useful: 2 * time.Second, Redone: 3 * time.Second, Overhead: 1500 * time.Millisecond,
			Evictions: 4, UncleanExits: 5}}
	for _, row := range []struct {
		name  string
		value any
		want  string
	}{
		{"a job", full, `{"id":"j","kind":"<k>","status":"running","fraction":0.5,"text":"half","reason":"why","owner":"w","deliveries":2,` +
			`"interruptions":5,"failures":3,"total_failures":4,"unclean_exits":6,"run_seconds":90,"cost":{"useful_seconds":2,` +
			`"redone_seconds":3,"overhead_seconds":1.5,"evictions":4,"unclean_exits":5},"seconds_left":` +
			`80,"state_bytes":7,"hand_over_seconds":1.5,"result_bytes":9,` +
			`"output_files":10,"output_bytes":11,` +
			`"seconds_since_write":10,"created_at":"2026-03-09T12:00:01Z","claimed_at":"2026-03-09T12:00:02Z",` +
			`"ended_at":"2026-03-09T12:00:03Z","updated_at":"2026-03-09T12:00:04Z","deadline":"2026-03-09T12:00:50Z",` +
			`"estimate_seconds":200,"expected_end":"2026-03-09T12:01:54Z","risk":"late","risk_reason":"the deadline is in 36s and cannot be met: ` +
			`about 1m40s of work are left","move_reason":"late","work_sha256":"ab"}`},
		{"a job of an older worker", Job{ID: "j", Status: StatusOpen}, `{"id":"j","status":"open","fraction":0,"deliveries":0,` +
			`"interruptions":0,"failures":0,"total_failures":0,"unclean_exits":0,"run_seconds":0,"state_bytes":0,` +
			`"result_bytes":0,"seconds_since_write":0}`},
		{"a job that was shown alone", Job{ID: "j", Status: StatusRunning, Group: "g", Inputs: []job.Input{{Container: "c", Blob: "b"}},
			FollowUps: FollowUps{IDs: []string{"next"}, More: true}, Runs: []Run{{Delivery: 1, StartedAt: at(1)}}, Live: &Live{Age: time.Minute}},
			`{"id":"j","status":"running","group":"g","fraction":0,"deliveries":0,"interruptions":0,"failures":0,"total_failures":0,` +
				`"unclean_exits":0,"run_seconds":0,"state_bytes":0,"result_bytes":0,"inputs":[{"container":"c","blob":"b"}],` +
				`"follow_ups":["next"],"more_follow_ups":true,"seconds_since_write":0,"runs":[{"delivery":1,` +
				`"started_at":"2026-03-09T12:00:01Z","checkpoints":0,"redone_seconds":0}],` +
				`"live":{"heartbeat_age_seconds":60,"fraction":0,"run_seconds":0}}`},
		{"a delivery", Run{Delivery: 2, Worker: "w", StartedAt: at(1), EndedAt: at(3), Outcome: "released", Checkpoints: 4, CheckpointAt: at(2),
			Redone: 1500 * time.Millisecond}, `{"delivery":2,"worker":"w","started_at":"2026-03-09T12:00:01Z",` +
			`"ended_at":"2026-03-09T12:00:03Z","outcome":"released","checkpoints":4,"checkpoint_at":"2026-03-09T12:00:02Z",` +
			`"redone_seconds":1.5}`},
		{"a heartbeat's progress", Live{Age: 1500 * time.Millisecond, Fraction: 0.5, Text: "half", RunTime: 2 * time.Second},
			`{"heartbeat_age_seconds":1.5,"fraction":0.5,"text":"half","run_seconds":2}`},
		{"a line", LogLine{Delivery: 1, Worker: "w", Number: 2, At: at(1), Source: "stdout", Text: "a<b"},
			`{"delivery":1,"worker":"w","number":2,"at":"2026-03-09T12:00:01Z","source":"stdout","text":"a<b"}`},
		{"a line of bytes", LogLine{Text: "\xff"}, `{"delivery":0,"number":0,"base64":"/w=="}`},
		{"missing lines", LogLine{Delivery: 1, Number: 2, LeftOut: 1}, `{"delivery":1,"number":2,"left_out":1}`},
		{"a poison message", PoisonMessage{MessageID: "m", OriginalID: "o", JobID: "j", Kind: "k", Reason: "r", Worker: "w", Queue: "q",
			GivenUpAt: at(1), InsertedAt: at(2)}, `{"id":"j","kind":"k","reason":"r","poisoned_at":"2026-03-09T12:00:01Z","worker":"w",` +
			`"origin":"q","message":"m","original_message":"o","inserted_at":"2026-03-09T12:00:02Z"}`},
		{"a foreign message", PoisonMessage{MessageID: "m", InsertedAt: at(2), Err: errors.New("no JSON")},
			`{"message":"m","inserted_at":"2026-03-09T12:00:02Z","fault":"no JSON"}`},
		{"a worker", Worker{Name: "w", VM: "v", VMSize: "D4", Zone: "2", State: "process", Asked: "drain", Version: "1", StartedAt: at(1),
			Age:    2 * time.Second,
			Queues: []string{"q"}, Kinds: []string{"k"}, Jobs: 1, JobIDs: []string{"j"},
			LastEvent: &Event{ID: "e", Type: "Preempt", Status: "Started", Action: "drain", SeenAt: at(3)},
			LastDrain: &Drain{Reason: "evicted", EndedAt: at(4), Took: 2500 * time.Millisecond, Jobs: 10, Done: 4, Released: 3, LeftOut: 2, Left: 1},
		}, `{"name":"w","vm":"v","vm_size":"D4","zone":"2","state":"process","asked":"drain","life":"alive","version":"1",` +
			`"started_at":"2026-03-09T12:00:01Z",` +
			`"heartbeat_age_seconds":2,"queues":["q"],"kinds":["k"],"jobs":1,"job_ids":["j"],"last_event":{"id":"e","type":"Preempt",` +
			`"status":"Started","action":"drain","seen_at":"2026-03-09T12:00:03Z"},"last_drain":{"reason":"evicted",` +
			`"ended_at":"2026-03-09T12:00:04Z","seconds":2.5,"jobs":10,"done":4,"released":3,"left_out":2,"left":1}}`},
		{"a worker without jobs", Worker{Name: "w", State: "process"},
			`{"name":"w","state":"process","life":"alive","heartbeat_age_seconds":0,"jobs":0}`},
	} {
		got, err := row.value.(json.Marshaler).MarshalJSON()
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", row.name, err, got, row.want)
		}
	}
}

// TestJSONError: a value that JSON cannot have is an error, whatever follows.
func TestJSONError(t *testing.T) {
	var o object
	o.set("broken", func() {})
	o.set("id", "j")
	if text, err := o.bytes(); err == nil || strings.Contains(string(text), "id") {
		t.Errorf("a function as a field: %s, %v, want an error and no further field", text, err)
	}
}
