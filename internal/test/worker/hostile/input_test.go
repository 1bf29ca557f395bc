package hostile

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestUnusableMessages: a message that is no usable job goes to the poison queue
// with its reason, and a usable one among them is done.
func TestUnusableMessages(t *testing.T) {
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := []struct {
		name, text, reason string
	}{
		{"not base64, not JSON", "what is this?", "--default-kind is not set"},
		{"base64 of no JSON", encoded("plain"), "--default-kind is not set"},
		{"JSON without v", `{"id":"x","kind":"echo"}`, "--default-kind is not set"},
		{"newer version", encoded(`{"v":3,"id":"x","kind":"echo"}`), "version 3"},
		{"version as text", encoded(`{"v":"1","id":"x","kind":"echo"}`), "version"},
		{"bad id", encoded(`{"v":1,"id":"../x","kind":"echo"}`), "job id"},
		{"no id", encoded(`{"v":1,"kind":"echo"}`), "job id"},
		{"no kind", encoded(`{"v":1,"id":"x"}`), "kind"},
		{"two payloads", encoded(`{"v":1,"id":"x","kind":"echo","payload":1,"payload_base64":"eA=="}`), "more than one"},
		{"bad reference", encoded(`{"v":1,"id":"x","kind":"echo","payload_ref":{"sha256":"zz","size":1}}`), "sha256"},
		{"missing payload blob", encoded(`{"v":1,"id":"y","kind":"echo","payload_ref":{"sha256":"` + strings.Repeat("0", 64) + `","size":1}}`),
			"missing"},
		{"oversize payload blob", encoded(`{"v":1,"id":"z","kind":"echo","payload_ref":{"sha256":"` + strings.Repeat("0", 64) +
			`","size":1000000000000}}`), "at most"},
	}
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for _, tt := range tests {
			b.PutText(tt.text)
		}
		b.Put("good", "echo", "1")
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitDone("good", time.Minute)
		b.WaitFor("queue empty", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		byBody := map[string]queue.Poison{}
		for _, p := range b.PoisonMessages() {
			byBody[p.Body] = p
		}
		for _, tt := range tests {
			p, ok := byBody[tt.text]
			switch {
			case !ok:
				t.Errorf("%s: no poison message", tt.name)
			case !strings.Contains(p.Reason, tt.reason):
				t.Errorf("%s: reason = %q, want one that names %q", tt.name, p.Reason, tt.reason)
			case p.Origin != b.Names.Queue || p.Worker == "" || p.MessageID == "":
				t.Errorf("%s: poison = %+v, want origin, worker and message id", tt.name, p)
			}
		}
		for _, id := range []string{"y", "z"} {
			if r := b.Record(id); r.Status != checkpoint.Poison || r.Reason == "" {
				t.Errorf("record %s = %s, %q, want poison with its reason", id, r.Status, r.Reason)
			}
		}
	})
}

// TestForeignMessageWithDefaultKind: text that is no envelope is the payload of a job of
// the default kind, with the message's id.
func TestForeignMessageWithDefaultKind(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutText("hello")
		message := b.Server.Messages(b.Names.Queue)[0]
		id := message.ID
		time.Sleep(time.Hour) // no worker runs
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.DefaultKind = "echo" })
		b.WaitDone(id, time.Minute)
		want := message.Inserted.Format(time.RFC3339Nano)
		if started := p.Log.Find("job started"); len(started) != 1 || started[0]["enqueued_at"] != want {
			t.Errorf("log lines of the job's start = %v, want one with enqueued_at %s", started, want)
		}
		if got, err := b.Records.Result(t.Context(), id); err != nil || string(got) != "hello" {
			t.Errorf("Result = %q, %v, want the text as it was delivered", got, err)
		}
	})
}

// TestDuplicates: one id has one outcome, however often it is enqueued.
func TestDuplicates(t *testing.T) {
	t.Run("finished", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			b.Put("a", "echo", "1")
			b.Start("vm_0", job.Kinds{"echo": rig.Echo})
			b.WaitDone("a", time.Minute)
			etag := b.Record("a").ETag
			b.Put("a", "echo", "1")
			b.WaitFor("duplicate gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
			if got := b.Record("a").ETag; got != etag {
				t.Errorf("record was written again: ETag %s, want %s", got, etag)
			}
		})
	})
	t.Run("running longer than the visibility", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			work := &rig.Steps{N: 300, Each: 300 * time.Millisecond}
			b.Put("a", "steps", "")
			b.Put("a", "steps", "")
			b.Put("a", "steps", "")
			b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) { c.Concurrency = 1 }) // it leaves the duplicates to the other
			b.WaitFor("job a running", time.Minute, func() bool { return b.Record("a").Status == checkpoint.Running })
			b.Start("vm_1", job.Kinds{"steps": work})
			b.WaitDone("a", 5*time.Minute)
			b.WaitFor("duplicates gone", 15*time.Minute, func() bool { return b.MessagesLeft() == 0 })
			if r := b.Record("a"); r.Generation != 1 || r.Failures+r.Interruptions+r.ChargedExits != 0 {
				t.Errorf("record = generation %d, %d failures, %d interruptions, %d unclean exits, want 1 and none",
					r.Generation, r.Failures, r.Interruptions, r.ChargedExits)
			}
		})
	})
	t.Run("other work under the same id", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			b.Put("a", "echo", "1")
			b.Start("vm_0", job.Kinds{"echo": rig.Echo, "other": rig.Echo})
			b.WaitDone("a", time.Minute)
			b.Put("a", "echo", "2")
			b.Put("a", "other", "1")
			b.WaitFor("both gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
			poisoned := b.PoisonMessages()
			if len(poisoned) != 2 {
				t.Fatalf("poison messages = %d, want 2", len(poisoned))
			}
			for _, p := range poisoned {
				if !strings.Contains(p.Reason, "other work") {
					t.Errorf("reason = %q, want one that says the id was used for other work", p.Reason)
				}
			}
			if r := b.Record("a"); r.Status != checkpoint.Done {
				t.Errorf("record = %s, want done, untouched", r.Status)
			}
		})
	})
}

// TestUnknownKind: a worker requeues a job of a kind that it lacks for a worker that
// has it. The job is dead-lettered if no worker has the kind for more than an hour.
func TestUnknownKind(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "strange", "1")
		b.Put("b", "strange", "1")
		first := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("put back", time.Minute, func() bool { return len(first.Log.Find("message deferred")) >= 2 })
		for _, line := range first.Log.Find("message deferred") {
			if since, err := time.Parse(time.RFC3339Nano, line["since"].(string)); err != nil || time.Since(since) > time.Minute {
				t.Errorf("a message was requeued since %s, want the time when it was first requeued", line["since"])
			}
		}
		first.Stop()
		// Another worker knows the kind.
		second := b.Start("vm_1", job.Kinds{"strange": rig.Echo})
		b.WaitDone("a", time.Minute)
		b.WaitDone("b", time.Minute)
		second.Stop()
		// No worker knows this one, for more than an hour.
		b.Put("c", "unheard-of", "1")
		b.Start("vm_2", job.Kinds{"echo": rig.Echo})
		time.Sleep(59 * time.Minute)
		if n := len(b.PoisonMessages()); n != 0 || b.MessagesLeft() != 1 {
			t.Errorf("after 59 min %d messages are poison and %d on the queue, want 0 and 1", n, b.MessagesLeft())
		}
		b.WaitFor("poison", 31*time.Minute, func() bool { return b.Record("c").Status == checkpoint.Poison })
		if p := b.PoisonMessages(); len(p) != 1 || p[0].ID != "c" || !strings.Contains(p[0].Reason, "unheard-of") {
			t.Errorf("poison = %+v, want job c with its kind in the reason", p)
		}
	})
}

// TestFailures: a job is dead-lettered with its last error after five failures in a
// row with back-offs between them, and at once after a permanent one.
func TestFailures(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		failing := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("no luck:\nÄrger") })
		permanent := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("cannot be"))
		})
		panicking := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { panic("oh") })
		huge := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return make([]byte, job.MaxResult+1), nil })
		for _, kind := range []string{"failing", "permanent", "panicking", "huge"} {
			b.Put(kind, kind, "1")
		}
		start := time.Now()
		b.Start("vm_0", job.Kinds{"failing": failing, "permanent": permanent, "panicking": panicking, "huge": huge})
		b.WaitFor("all poisoned", time.Hour, func() bool { return len(b.PoisonMessages()) == 4 && b.MessagesLeft() == 0 })
		// 10 + 20 + 40 + 80 s between five attempts.
		if took := time.Since(start); took < 150*time.Second || took > 4*time.Minute {
			t.Errorf("five failures took %s, want back-offs of 150 s and the polls between", took)
		}
		want := map[string]string{
			"failing": "5 failures in a row without progress, the last: no luck:\nÄrger", "permanent": "cannot be",
			"panicking": "panicked: oh", "huge": "result has 1048577 bytes",
		}
		for id, reason := range want {
			if r := b.Record(id); r.Status != checkpoint.Poison || !strings.Contains(r.Reason, reason) {
				t.Errorf("record %s = %s, %q, want poison, %q", id, r.Status, r.Reason, reason)
			}
		}
		if r := b.Record("failing"); r.Failures != 5 || r.FailuresTotal != 5 {
			t.Errorf("record of a job that failed five times: %d failures in a row, %d in all, want 5 and 5", r.Failures, r.FailuresTotal)
		}
	})
}

// TestFailuresWithProgress: progress resets the count of failures in a row.
func TestFailuresWithProgress(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		attempts := 0
		h := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			attempts++
			if attempts > 12 {
				return nil, nil
			}
			j.Report(job.Progress{State: fmt.Append(nil, attempts)})
			return nil, errors.New("again")
		})
		b.Put("a", "h", "1")
		b.Start("vm_0", job.Kinds{"h": h})
		b.WaitDone("a", 10*time.Minute)
		if attempts != 13 {
			t.Errorf("attempts = %d, want 13", attempts)
		}
	})
}

// TestUnstorableReports: the record holds any text that a handler reports. A state
// that is too large dead-letters the job, with its size in the reason.
func TestUnstorableReports(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		text := "Zeile 1\nZeile 2: größer, 大きい"
		chatty := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("s"), Text: text})
			time.Sleep(20 * time.Second)
			return nil, nil
		})
		bloated := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: make([]byte, job.MaxState+1)})
			<-ctx.Done()
			return nil, ctx.Err()
		})
		b.Put("chatty", "chatty", "")
		b.Put("bloated", "bloated", "")
		b.Start("vm_0", job.Kinds{"chatty": chatty, "bloated": bloated})
		b.WaitFor("text", 10*time.Second, func() bool { return b.Record("chatty").Text == text })
		b.WaitFor("poison", time.Minute, func() bool { return b.Record("bloated").Status == checkpoint.Poison })
		if r := b.Record("bloated"); !strings.Contains(r.Reason, "state has 8388609 bytes") {
			t.Errorf("reason = %q, want the size of the state", r.Reason)
		}
		b.WaitDone("chatty", time.Minute)
	})
}
