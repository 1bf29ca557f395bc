package queuestats

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// TestGrows has the number of messages at each reading, and the readings at which the queue
// is reported to grow.
func TestGrows(t *testing.T) {
	for name, row := range map[string]struct {
		messages []int
		want     []int // indices
	}{
		"two rises":                     {[]int{100, 150, 200}, []int{2}},
		"reported once while it rises":  {[]int{100, 150, 200, 300, 400}, []int{2}},
		"again after a pause":           {[]int{100, 150, 200, 200, 300, 400}, []int{2, 5}},
		"from an empty queue":           {[]int{0, 5, 30}, []int{2}},
		"one rise":                      {[]int{100, 200, 200, 300, 250}, nil},
		"few messages":                  {[]int{1, 5, 25}, nil},
		"a small share":                 {[]int{10000, 10400, 10800}, nil},
		"few, then many":                {[]int{1, 2, 3, 50}, []int{3}},
		"shrinks":                       {[]int{300, 200, 100}, nil},
		"the first reading is no rise":  {[]int{500, 600}, nil},
		"slower, still growing, no end": {[]int{100, 150, 200, 215, 400}, []int{2}},
	} {
		var seen trends
		q := &queue.Queue{}
		var got []int
		for i, n := range row.messages {
			if seen.grows(q, n) {
				got = append(got, i)
			}
			if other := (&queue.Queue{}); seen.grows(other, n) {
				t.Errorf("%s: another queue grows", name)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%s: reported at %v, want %v", name, got, row.want)
		}
	}
}

// TestGrowthIsLogged: a queue that grows is logged at the third reading in the log, and costs no
// calls but the readings.
func TestGrowthIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		n := 0
		begun := time.Now()
		r.Logs = func() bool { // called before each reading that is logged
			for range 50 {
				n++
				if err := r.queue.Put(t.Context(), queue.Envelope{ID: fmt.Sprint(n), Kind: "echo", EnqueuedAt: time.Now()}, 0); err != nil {
					t.Fatal(err)
				}
			}
			return true
		}
		r.runFor(t, 4*(LogEvery+Every))
		text := r.log.String()
		if strings.Count(text, `"queue grows"`) != 1 || strings.Count(text, `"queue read"`) < 3 {
			t.Fatalf("log:\n%s\nwant one line of growth", text)
		}
		line := text[strings.Index(text, `"level":"WARN"`):]
		if !strings.Contains(line, `"msg":"queue grows","queue":"jobs","messages":150,"since":"`) {
			t.Errorf("line = %s, want the queue and its messages", line)
		}
		if calls := r.server.Counts(); calls["GetQueueMetadata"] > int64(time.Since(begun)/Every) ||
			calls["PeekMessages"] > calls["GetQueueMetadata"] {
			t.Errorf("calls: %v, want no more than for readings", calls)
		}
	})
}
