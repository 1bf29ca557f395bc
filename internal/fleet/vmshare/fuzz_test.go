package vmshare

import (
	"log/slog"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// FuzzRequests: for any file of requests, no more of them are let through than the
// service answers, a worker waits for a bounded time, and a written file is read again.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", `{"boot":"boot","sent":[1,2,3]}`, `{"boot":"boot","sent":[1,2,3,4,5]}`, `{"boot":"boot","sent":[1,2,3,4,5,6]}`,
		`{"boot":"other","sent":[5]}`,
		`{"boot":"boot","sent":[-1]}`, `{"boot":"boot","sent":[9223372036854775807]}`, `{"boot":"boot","sent":[3,2,1]}`,
		`{"boot":"boot","sent":[60000000000,60000000000]}`, `{"boot`, "\x00\x00",
	} {
		f.Add([]byte(seed), int64(time.Minute))
	}
	f.Fuzz(func(t *testing.T, content []byte, at int64) {
		now := time.Duration(at)
		if now < 0 || now > 100*365*24*time.Hour {
			return // no machine runs for so long
		}
		b := &budget{dir: &Dir{Config: Config{Boot: "boot", Log: slog.New(slog.DiscardHandler)}}}
		var sent []time.Duration
		for range 20 {
			slots := b.parse(content, now)
			slot, ok := slots.Reserve(now, preempt.Poll)
			if slot < now || slot > now+farAhead+2*requestsWindow {
				t.Fatalf("file %q at %s: the next request is at %s", content, now, slot)
			}
			if ok {
				sent = append(sent, slot)
				content = b.format(slots)
			}
			now = slot + time.Millisecond
		}
		for i := range len(sent) - requestsMost {
			if between := sent[i+requestsMost] - sent[i]; between < requestsWindow {
				t.Fatalf("file %q: %d requests within %s: %v", content, requestsMost+1, between, sent)
			}
		}
		if len(sent) == 0 {
			t.Fatal("no request was let through")
		}
	})
}
