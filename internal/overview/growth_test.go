package overview

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// TestGrowth: a queue grows if it has clearly more messages than one to five minutes before.
// Then no time to clear it is shown.
func TestGrowth(t *testing.T) {
	at := func(after time.Duration, messages int) Snapshot {
		s := busy()
		s.At, s.Queues.Jobs.Messages = noon.Add(after), messages
		s.Queues.Shards = nil
		return s
	}
	for name, row := range map[string]struct {
		read []Snapshot
		want string // of the last; empty for none
	}{
		"one reading":           {[]Snapshot{at(0, 1000)}, ""},
		"too soon":              {[]Snapshot{at(0, 1000), at(growthSpan-1, 2000)}, ""},
		"more":                  {[]Snapshot{at(0, 1000), at(growthSpan, 1100)}, "+100 in 1m"},
		"from nothing":          {[]Snapshot{at(0, 0), at(growthSpan, growthLeast)}, "+5 in 1m"},
		"a few":                 {[]Snapshot{at(0, 0), at(growthSpan, growthLeast-1)}, ""},
		"about as many":         {[]Snapshot{at(0, 1000), at(growthSpan, 1050)}, ""},
		"fewer":                 {[]Snapshot{at(0, 1000), at(growthSpan, 900)}, ""},
		"more, and fewer again": {[]Snapshot{at(0, 1000), at(2*time.Minute, 2000), at(4*time.Minute, 1000)}, ""},
		"long ago":              {[]Snapshot{at(0, 100), at(growthKept-time.Minute, 1000), at(growthKept+time.Second, 1000)}, ""},
	} {
		var g growths
		var found map[string]Growth
		for _, s := range row.read {
			found = g.add(&s)
		}
		last := row.read[len(row.read)-1]
		growth, grows := found[last.Queues.Jobs.Name]
		if grows != (row.want != "") || grows && growth.String() != row.want {
			t.Errorf("%s: %v, want %q", name, found, row.want)
		}
		last.Growing = found
		screen := strings.Join(Draw(last, 120, 0), "\n")
		if strings.Contains(screen, "grows") != grows {
			t.Errorf("%s: the screen says so: %t\n%s", name, !grows, screen)
		}
	}
	var g growths
	unread := at(0, 1)
	unread.Faults = []Fault{{Part: PartQueues, Err: errors.New("no role")}}
	if found := g.add(&unread); found != nil || len(g.counts) != 0 {
		t.Errorf("a snapshot without queues: %v", found)
	}
	many := at(0, 1)
	for i := range 1000 {
		many.At, many.Queues.Jobs = noon.Add(time.Duration(i)*time.Second), client.Queue{Name: "q", Exists: true, Messages: i}
		g.add(&many)
	}
	if len(g.counts) > 301 {
		t.Errorf("%d counts are kept, want those of 5 min", len(g.counts))
	}
}

// TestWaiting: a job counts as waiting if neither a heartbeat nor a record has it.
func TestWaiting(t *testing.T) {
	alive := client.Worker{Name: "w", State: "process", Jobs: 2}
	silent := client.Worker{Name: "v", State: "process", Jobs: 9, Age: time.Minute}
	for name, row := range map[string]struct {
		messages, running int
		workers           []client.Worker
		want              int
	}{
		"nobody":                    {9, 0, nil, 9},
		"heartbeats are older":      {9, 6, []client.Worker{alive}, 3},
		"records are older":         {9, 0, []client.Worker{alive}, 7},
		"both know":                 {9, 2, []client.Worker{alive}, 7},
		"a silent worker":           {9, 0, []client.Worker{silent}, 9},
		"the count of the queue is": {1, 0, []client.Worker{alive}, 0},
	} {
		s := Snapshot{Workers: row.workers, Queues: client.Queues{Jobs: client.Queue{Messages: row.messages}},
			Jobs: Jobs{ByStatus: map[client.Status]int{client.StatusRunning: row.running}}}
		if got := s.Waiting(); got != row.want {
			t.Errorf("%s: %d waiting, want %d", name, got, row.want)
		}
	}
}
