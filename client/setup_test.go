package client

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a deployment on an emulator, and a client of it.
type rig struct {
	*Client
	server *storage.Server
}

func setup(t *testing.T) *rig {
	t.Helper()
	b := setupBare(t, Options{})
	if err := b.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.server.ResetCounts()
	return b
}

// setupBare is setup before anything was created.
func setupBare(t *testing.T, o Options) *rig {
	t.Helper()
	b := &rig{server: storage.New(storage.Options{})}
	o.ConnectionString, o.Transport, o.Name = b.server.ConnectionString(), b.server.Transport(), "test@desk"
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Client = c
	return b
}

// seed writes the record of a job of the kind "k" as a worker leaves it.
func (b *rig) seed(t *testing.T, id string, status Status) *checkpoint.Claim {
	t.Helper()
	return seedRecord(t, b.stores.Records, id, status)
}

// seedRecord writes the record of a job, as a worker leaves it.
func seedRecord(t *testing.T, records *checkpoint.Store, id string, status Status) *checkpoint.Claim {
	t.Helper()
	ctx := t.Context()
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id}
	claim, err := records.Create(ctx, d, "worker-1")
	switch {
	case err != nil:
	case status == StatusOpen:
		err = claim.Release(ctx, checkpoint.Snapshot{})
	case status == StatusDone:
		err = claim.Commit(ctx, []byte(`{"of":"`+id+`"}`))
	case status == StatusPoison:
		err = claim.Poison(ctx, checkpoint.Snapshot{}, "no such frame")
	case status == StatusCancelled:
		if err = claim.Poison(ctx, checkpoint.Snapshot{}, "no such frame"); err == nil {
			_, err = records.Purge(ctx, d, "operator", "not wanted")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// seedNewer replaces a job's record by one of a newer version.
func (b *rig) seedNewer(t *testing.T, id string) {
	t.Helper()
	b.seed(t, id, StatusDone)
	blob := b.stores.Account.Container(b.stores.Names.Records).NewBlobClient(pathOf(id))
	if _, err := blob.SetMetadata(t.Context(), map[string]*string{"v": new("99"), "status": new("done")}, nil); err != nil {
		t.Fatal(err)
	}
}
