package hostile

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// forgedRecord is a record that no worker wrote, and the expected outcome of its job.
type forgedRecord struct {
	metadata map[string]string
	body     string
	want     string // "done", "poison", "left alone" or "deleted"
	reason   string // part of the poison message's reason
}

// forgedRecords returns records of a job of the kind "echo" whose payload is 1.
func forgedRecords() map[string]forgedRecord {
	work := map[string]string{"v": "1", "kind": "echo", "payloadhash": hashOf("1"), "messageid": "m", "token": "t"}
	with := func(pairs ...string) map[string]string {
		m := maps.Clone(work)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	const most = "9007199254740992" // the largest number that a record may have
	return map[string]forgedRecord{
		"done, with no result":      {with("status", "done"), "", "deleted", ""},
		"done, of another kind":     {with("status", "done", "kind", "other"), "x", "poison", "other work"},
		"done, of another payload":  {with("status", "done", "payloadhash", hashOf("2")), "x", "poison", "other work"},
		"done, for any work":        {map[string]string{"v": "1", "status": "done"}, "x", "deleted", ""},
		"a newer version":           {with("v", "99", "status", "done"), "x", "left alone", ""},
		"no version":                {map[string]string{"status": "done", "kind": "echo"}, "x", "left alone", ""},
		"a foreign blob":            {nil, "x", "left alone", ""},
		"an unknown status":         {with("status", "paused"), "", "left alone", ""},
		"no status":                 {with(), "", "left alone", ""},
		"a generation below 0":      {with("status", "open", "generation", "-1"), "", "left alone", ""},
		"a generation out of range": {with("status", "open", "generation", "9223372036854775807"), "", "left alone", ""},
		"a broken escape":           {with("status", "open", "reason", "%zz"), "", "left alone", ""},
		"the last generation":       {with("status", "open", "generation", most, "write", most, "interruptions", most), "", "done", ""},
		"very many early exits":     {with("status", "open", "earlyends", most), "", "poison", "saving takes longer"},
		"very many unclean exits":   {with("status", "open", "silentends", most), "", "poison", "unclean exits in a row"},
		"a state of another hash":   {with("status", "open", "statehash", hashOf("x"), "statesize", "1"), "y", "poison", "damaged"},
		"a state beyond the limit": {with("status", "open", "statehash", hashOf("x"), "statesize", "1"), strings.Repeat("x", 8<<20+1), "poison",
			"more than 8388608 bytes"},
		"a shorter body":          {with("status", "open", "statehash", hashOf("x"), "statesize", most, "stateblocks", "50000"), "x", "done", ""},
		"running, but owner gone": {with("status", "running", "owner", "vm_x"), "", "done", ""},
	}
}

// TestForgedRecords: a damaged or forged record is used as far as it can be parsed.
// Otherwise record and message are left as they are. No message is lost, and no worker
// exits.
func TestForgedRecords(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		cases := map[string]forgedRecord{} // by job id
		before := map[string]azcore.ETag{}
		for name, f := range forgedRecords() {
			for delivery := range map[string]bool{"first": true, "resumed": true} {
				id := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name) + "." + delivery
				putRecord(b, id, f)
				cases[id], before[id] = f, b.Record(id).ETag
			}
		}
		time.Sleep(2 * time.Hour) // so that the owner of a running job counts as gone
		for id := range cases {
			b.PutText(put64(`{"v":1,"id":"%s","kind":"echo","payload":1,"resume":%t}`, id, strings.HasSuffix(id, ".resumed")))
		}
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency, c.Metadata = len(cases), nil })
		time.Sleep(10 * time.Minute) // long enough for five failures
		reasons := map[string]string{}
		for _, p := range b.PoisonMessages() {
			reasons[p.ID] += p.Reason
		}
		for id, f := range cases {
			reason, poisoned := reasons[id]
			if got := outcomeOf(b, id, before[id], poisoned); got != f.want || !strings.Contains(reason, f.reason) {
				t.Errorf("%s: the job is %s with reason %q, want %s, %q", id, got, reason, f.want, f.reason)
			}
		}
		b.Put("good", "echo", "1")
		b.WaitDone("good", time.Minute)
	})
}

// putRecord writes a forged record.
func putRecord(b *rig.Bed, id string, f forgedRecord) {
	b.T.Helper()
	metadata := map[string]*string{}
	for key, value := range f.metadata {
		metadata[key] = &value
	}
	upload(b, b.Names.Records, jobid.Path(id), f.body, metadata)
}

// outcomeOf returns the outcome of a job whose record was forged, as its record and
// messages show it.
func outcomeOf(b *rig.Bed, id string, before azcore.ETag, poisoned bool) string {
	b.T.Helper()
	left := 0
	for _, m := range b.Server.Messages(b.Names.Queue) {
		if e, err := queue.Decode(m.Text); err == nil && e.ID == id {
			left++
		}
	}
	switch after := b.Record(id); {
	case after.ETag == before && left == 1 && !poisoned:
		return "left alone"
	case poisoned && left == 0:
		return "poison"
	case after.ETag == before && left == 0:
		return "deleted"
	case after.Status == checkpoint.Done && left == 0:
		return "done"
	default:
		return fmt.Sprintf("not over: its record is %s, %d messages are left", after.Status, left)
	}
}
