package hostile

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// put64 returns a message's text: base64 of JSON.
func put64(format string, args ...any) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, format, args...))
}

// plainNames matches the names of blobs that a worker may write: records, payloads,
// bodies of poison messages.
var plainNames = regexp.MustCompile(`^[0-9a-f]{3}/[A-Za-z0-9_~-]([A-Za-z0-9._~-]{0,126}[A-Za-z0-9_~-])?(/[0-9a-f]{64})?$|` +
	`^poison/[0-9a-f-]{36}$`)

// checkNames checks that no container has a blob under another name.
func checkNames(b *rig.Bed) {
	b.T.Helper()
	for _, container := range []string{b.Names.Records, b.Names.Payloads} {
		for _, blob := range b.Server.Blobs(container) {
			if !plainNames.MatchString(blob.Name) {
				b.T.Errorf("container %s has the blob %q", container, blob.Name)
			}
		}
	}
	for _, blob := range b.Server.Blobs(b.Names.Workers) {
		if !strings.HasPrefix(blob.Name, "vm_") {
			b.T.Errorf("container %s has the blob %q", b.Names.Workers, blob.Name)
		}
	}
}

// TestHostileMessages: a malicious message is moved to the poison queue with a reason.
// No blob is written under its id, no handler receives it, and a job behind it is done.
func TestHostileMessages(t *testing.T) {
	const good = `"kind":"echo","payload":1`
	rows := map[string]struct{ text, reason string }{}
	for name, id := range map[string]string{
		"a path outside": `../../test-payloads/x`, "an escaped path outside": `..%2f..%2fx`, "one level up": `..`, "a dot": `.`,
		"a slash": `a/b`, "a backslash": `a\\b`, "a query": `a?comp=metadata`, "a fragment": `a#b`, "a NUL": `a\u0000b`,
		"a newline": `a\r\nx-ms-meta-status: done`, "an escape": `\u001b[2J`, "an accent": `caf\u00e9`, "a trailing dot": `a.`,
		"very long": strings.Repeat("a", 129), "40 KiB long": strings.Repeat("a", 40<<10), "a space": ` `, "nothing": ``,
	} {
		rows["an id with "+name] = struct{ text, reason string }{put64(`{"v":1,"id":"%s",%s}`, id, good), "job id"}
	}
	for name, kind := range map[string]string{
		"a program": `/bin/sh`, "a path outside": `../echo`, "an argument": `echo -n`, "other letters": `\u0435cho`,
		"a length of 65": strings.Repeat("k", 65), "a NUL": `echo\u0000`,
	} {
		rows["a kind with "+name] = struct{ text, reason string }{put64(`{"v":1,"id":"x","kind":"%s"}`, kind), "kind"}
	}
	for name, field := range map[string][2]string{
		"a limit of 1e300":         {`"max_run":1e300`, "max_run"},
		"a limit of 2^63-1":        {`"max_run":9223372036854775807`, "max_run"},
		"a limit below 0":          {`"max_silence":-1`, "max_silence"},
		"a part of a second":       {`"max_run":0.1`, "max_run"},
		"the hour 25":              {`"put_back_since":"2026-03-09T25:00:00Z"`, "put_back_since"},
		"a time beyond UTC":        {`"put_back_since":"9999-12-31T23:59:59-23:59"`, "year"},
		"a deadline of words":      {`"deadline":"soon"`, "deadline"},
		"an id that is a list":     {`"id":["x"]`, "id"},
		"two payloads":             {`"payload_ref":{"sha256":"../../x","size":1}`, "more than one"},
		"a long trace":             {`"trace":"` + strings.Repeat("t", 9<<10) + `"`, "beside the payload"},
		"a long unknown field":     {`"x":"` + strings.Repeat("t", 9<<10) + `"`, "beside the payload"},
		"a poison message's field": {`"poisoned_at":"2026-03-09T12:00:00Z"`, "poison message"},
	} {
		rows[name] = struct{ text, reason string }{put64(`{"v":1,"id":"x",%s,%s}`, good, field[0]), field[1]}
	}
	rows["64 KiB of garbage"] = struct{ text, reason string }{strings.Repeat("z", 64<<10), "--default-kind"}
	rows["48 KiB of brackets"] = struct{ text, reason string }{base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("["), 48<<10)),
		"--default-kind"}
	rows["an object 11,000 deep"] = struct{ text, reason string }{put64(`{"v":1,"id":"x","kind":"echo","payload":%s%s}`,
		strings.Repeat("[", 11000), strings.Repeat("]", 11000)), "--default-kind"}
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		wanted := map[string]string{}
		for name, row := range rows {
			wanted[row.text] = name
			b.PutText(row.text)
		}
		b.Put("good", "echo", "1")
		b.Start("vm_0", job.Kinds{"echo": onlyFor("good")})
		b.WaitDone("good", time.Minute)
		b.WaitFor("queue empty", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		for _, p := range b.PoisonMessages() {
			text := bodyOf(b, p)
			name := wanted[text]
			delete(wanted, text)
			if reason := rows[name].reason; name == "" || !strings.Contains(p.Reason, reason) || p.ID != "" && jobid.Validate(p.ID) != nil ||
				len(p.Reason) > 400 {
				t.Errorf("%s: poison with id %q and reason %q, want a short reason that contains %q", name, p.ID, p.Reason, reason)
			}
		}
		for _, name := range wanted {
			t.Errorf("%s: no poison message", name)
		}
		if records := len(b.Server.Blobs(b.Names.Records)); records != 1 {
			t.Errorf("records = %d, want that of the good job alone", records)
		}
		checkNames(b)
	})
}

// onlyFor returns a handler that returns the payload of that job, and panics for
// others.
func onlyFor(id string) job.Handler {
	return job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
		if j.ID != id {
			panic("called for job " + j.ID)
		}
		return j.Payload, nil
	})
}

// bodyOf returns the text of the original message of a poison message.
func bodyOf(b *rig.Bed, p queue.Poison) string {
	if p.BodyBlob == "" {
		return p.Body
	}
	_, body, _ := b.Server.ReadBlob(b.Names.Payloads, p.BodyBlob)
	return string(body)
}

// TestDeepPayload: JSON of the greatest depth that is accepted reaches its handler
// unchanged.
func TestDeepPayload(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		deep := strings.Repeat("[", 9999) + strings.Repeat("]", 9999)
		b.PutText(put64(`{"v":1,"id":"deep","kind":"echo","payload":%s}`, deep))
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitDone("deep", time.Minute)
		if got, err := b.Records.Result(t.Context(), "deep"); err != nil || string(got) != deep {
			t.Errorf("Result = %d bytes, %v, want the payload's %d", len(got), err, len(deep))
		}
	})
}
