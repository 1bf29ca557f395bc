package waiting

import (
	"testing"

	"github.com/spotworker/spotworker/internal/queue"
)

// TestUnclaimed: a message is unclaimed if it is there at both looks with the same dequeue
// count, wherever it is.
func TestUnclaimed(t *testing.T) {
	at := func(id string, deliveries int64) queue.Peeked { return queue.Peeked{ID: id, Deliveries: deliveries} }
	before := []queue.Peeked{at("stays", 0), at("claimed and released", 1), at("gone", 0), at("resumes", 3)}
	now := []queue.Peeked{at("new", 0), at("resumes", 3), at("claimed and released", 2), at("stays", 0)}
	got := unclaimed(before, now)
	if len(got) != 2 || got[0].ID != "resumes" || got[1].ID != "stays" {
		t.Errorf("unclaimed = %+v, want resumes and stays", got)
	}
	if len(unclaimed(nil, now)) != 0 || len(unclaimed(before, nil)) != 0 {
		t.Error("messages that were seen once are unclaimed")
	}
}
