package storage

import (
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

func blockID(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestStagedBlocksAreKeptForAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		fresh, old := a.blob("fresh"), a.blob("old")
		stage := func(b *blockblob.Client) {
			t.Helper()
			if _, err := b.StageBlock(t.Context(), blockID("1"), text("one"), nil); err != nil {
				t.Fatalf("StageBlock: %v", err)
			}
		}
		stage(fresh)
		if _, err := old.Upload(t.Context(), text("committed"), nil); err != nil {
			t.Fatalf("Upload: %v", err)
		}
		stage(old)
		time.Sleep(7 * 24 * time.Hour)
		if got := a.Blobs("records"); len(got) != 2 || len(got[0].Staged) != 1 || len(got[1].Staged) != 1 {
			t.Fatalf("after a week: %+v, want a staged block each", got)
		}
		time.Sleep(time.Second)
		got := a.Blobs("records")
		if len(got) != 1 || got[0].Name != "old" || len(got[0].Staged) != 0 {
			t.Errorf("a second later: %+v, want the committed blob alone, nothing staged", got)
		}
		lists, err := old.GetBlockList(t.Context(), blockblob.BlockListTypeAll, nil)
		if err != nil || len(lists.UncommittedBlocks) != 0 {
			t.Errorf("GetBlockList = %d staged blocks, %v, want none", len(lists.UncommittedBlocks), err)
		}
		if _, err := old.CommitBlockList(t.Context(), []string{blockID("1")}, nil); err == nil {
			t.Errorf("CommitBlockList of a block that is gone succeeded, want a refusal")
		}
		// A create finds the name free again, and ids of another length fit.
		if _, err := fresh.StageBlock(t.Context(), blockID("22"), text("two"), nil); err != nil {
			t.Errorf("StageBlock with an id of another length = %v, want success", err)
		}
	})
}

func TestCreationTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		b := a.blob("blob")
		began := time.Now().UTC()
		age := func() time.Duration {
			t.Helper()
			props, err := b.GetProperties(t.Context(), nil)
			if err != nil {
				t.Fatalf("GetProperties: %v", err)
			}
			return props.CreationTime.Sub(began)
		}
		upload := func() {
			t.Helper()
			if _, err := b.Upload(t.Context(), text("x"), nil); err != nil {
				t.Fatalf("Upload: %v", err)
			}
		}
		upload()
		time.Sleep(time.Minute)
		if _, err := b.CommitBlockList(t.Context(), nil, nil); err != nil {
			t.Fatalf("CommitBlockList: %v", err)
		}
		if got := age(); got != 0 {
			t.Errorf("created %s after the start, want 0s: a commit keeps the time", got)
		}
		upload()
		if got := age(); got != time.Minute {
			t.Errorf("created %s after the start, want 1m0s: Put Blob replaces the blob", got)
		}
	})
}
