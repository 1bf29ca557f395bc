package main

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
)

// groupPut GROUP KIND STATUS ID... puts jobs in a group, and with a status other than open
// leaves their records as a worker does.
func groupPut(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	c, err := client.Open(client.Options{ConnectionString: ts.Getenv("AZURE_STORAGE_CONNECTION_STRING"),
		MoreConnectionStrings: strings.Fields(ts.Getenv("SPOTWORKER_MORE_CONNECTION_STRINGS"))})
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
