package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
)

// groupPut GROUP KIND STATUS ID... puts jobs in a group, and with a status other than open
// leaves their records as a worker does.
func groupPut(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	c, err := client.Open(client.Options{ConnectionString: ts.Getenv("AZURE_STORAGE_CONNECTION_STRING")})
	ts.Check(err)
	for _, id := range args[3:] {
		_, err := c.Put(ctx, client.Spec{ID: id, Kind: args[1], Group: args[0]})
		ts.Check(err)
		ts.Check(work(ctx, w, id, args[2]))
	}
}

// work leaves the record of a job that was put as a worker does.
func work(ctx context.Context, w *world, id, status string) error {
	if status == "open" {
		return nil
	}
	found, err := w.stores.Records.Read(ctx, id)
	if err != nil {
		return err
	}
	d := checkpoint.Delivery{ID: id, Kind: found.Kind, PayloadHash: found.PayloadHash, MessageID: uuid.NewString()}
	claim, err := w.stores.Records.Acquire(ctx, d, found, "vmss_1-0123abcd-0")
	if err != nil {
		return err
	}
	switch status {
	case "done":
		return claim.Commit(ctx, []byte(`"`+id+`"`))
	case "poison":
		return claim.Poison(ctx, checkpoint.Snapshot{}, "no such file")
	}
	return nil
}

// putsOnWrite is an output that puts a job in a group at its first line, as a producer does
// that runs at the same time.
type putsOnWrite struct {
	to  *strings.Builder
	put func()
}

func (w *putsOnWrite) Write(text []byte) (int, error) {
	if w.put != nil {
		put := w.put
		w.put = nil
		put()
	}
	return w.to.Write(text)
}

// TestCancelGroupSeesLatePuts: a job that is put in the group while it is cancelled is not
// missed in silence, and a repeat cancels it.
func TestCancelGroupSeesLatePuts(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		put := func(id string) {
			if _, err := d.opened.Put(t.Context(), client.Spec{ID: id, Kind: "k", Group: "night"}); err != nil {
				t.Error(err)
			}
		}
		put("first")
		d.printer.out = &putsOnWrite{&d.out, func() { put("late") }}
		c := cancelCommand{selection: selection{Group: "night"}, Yes: true}
		err := c.run(t.Context(), d.session)
		const want = "1 jobs of group night were put or replayed meanwhile and are not cancelled: repeat the command"
		if err == nil || err.Error() != want {
			t.Errorf("cancel = %v, want %s\n%s%s", err, want, &d.out, &d.notes)
		}
		if err := c.run(t.Context(), d.session); err != nil {
			t.Errorf("cancel again = %v", err)
		}
		jobs, err := d.opened.Group(t.Context(), "night")
		for _, j := range jobs {
			if j.Status != client.StatusCancelled {
				t.Errorf("job %s is %s, want cancelled", j.ID, j.Status)
			}
		}
		if len(jobs) != 2 || err != nil {
			t.Errorf("%d jobs, %v, want 2", len(jobs), err)
		}
	})
}
