package client

import (
	"errors"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// foreign puts a text on the poison queue, and returns the message's id.
func (b *rig) foreign(t *testing.T, text string) string {
	t.Helper()
	if err := b.stores.Poison.PutUnchanged(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	messages, _, err := b.PeekPoison(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return messages[len(messages)-1].MessageID
}

// TestPoisonDetails: the record of the job is there if there is one that can be read.
func TestPoisonDetails(t *testing.T) {
	b := setup(t)
	b.giveUp(t, "a")
	poisoned(t, b.stores, "no-record")
	for id, has := range map[string]bool{"a": true, "no-record": false} {
		m, err := b.FindPoison(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		d, err := b.PoisonDetails(t.Context(), m)
		if err != nil || (d.Job != nil) != has || has && d.Job.Reason != "no such frame" || d.Text == "" {
			t.Errorf("details of %s = %+v, %v, want a record: %t", id, d, err, has)
		}
		refuse(b.server, storage.OpGetBlobProperties)
		if d, err := b.PoisonDetails(t.Context(), m); !errors.Is(err, ErrDenied) || d.Job != nil {
			t.Errorf("details of %s whose record is denied = %+v, %v, want ErrDenied", id, d, err)
		}
		b.server.OnCall(nil)
	}
}

// TestReplayReports: each outcome has the id of the job or else of the message, and errors are
// in words.
func TestReplayReports(t *testing.T) {
	b := setup(t)
	message := b.foreign(t, "no JSON")
	b.giveUp(t, "a")
	replay := func(s Selection) (all []ActionResult) {
		t.Helper()
		if err := b.Replay(t.Context(), s, ReplayOptions{}, func(r ActionResult) error { all = append(all, r); return nil }); err != nil {
			t.Error(err)
		}
		return all
	}
	got := replay(Selection{IDs: []string{message}})
	if len(got) != 1 || got[0].ID != message || got[0].MessageID != message || got[0].Action != Refused || got[0].Err == nil ||
		got[0].Err.Error() != "job "+message+": "+got[0].Detail {
		t.Errorf("replay of a text = %+v, want it refused by the message's id", got)
	}
	refuse(b.server, storage.OpPutMessage)
	got = replay(Selection{IDs: []string{"a"}})
	if len(got) != 1 || got[0].Action != Failed || !errors.Is(got[0].Err, ErrDenied) || got[0].Detail != got[0].Err.Error() {
		t.Errorf("replay while puts are denied = %+v, want it failed for that", got)
	}
}
