package storage

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
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

func TestBlockListLimits(t *testing.T) {
	const maxBlocks = 50_000
	a := setup(t, Options{})
	b := a.blob("blob")
	if _, err := b.StageBlock(t.Context(), blockID("1"), text("x"), nil); err != nil {
		t.Fatalf("StageBlock: %v", err)
	}
	list := strings.Split(strings.Repeat(blockID("1")+" ", maxBlocks+1), " ")
	_, err := b.CommitBlockList(t.Context(), list[:maxBlocks+1], nil)
	if err == nil || !strings.Contains(err.Error(), "BlockListTooLong") {
		t.Errorf("CommitBlockList of %d blocks = %v, want BlockListTooLong", maxBlocks+1, err)
	}
	if _, err := b.CommitBlockList(t.Context(), list[:maxBlocks], nil); err != nil {
		t.Errorf("CommitBlockList of %d blocks = %v, want success", maxBlocks, err)
	}
	if got := a.Blobs("records")[0].Size; got != maxBlocks {
		t.Errorf("size = %d, want %d", got, maxBlocks)
	}
}

// The SDK names all blocks "Latest"; the protocol has two more choices.
func TestBlockListChoosesWhereToLook(t *testing.T) {
	a := setup(t, Options{})
	b := a.blob("blob")
	id := blockID("1")
	stage := func(s string) {
		t.Helper()
		if _, err := b.StageBlock(t.Context(), id, text(s), nil); err != nil {
			t.Fatalf("StageBlock: %v", err)
		}
	}
	commit := func(element string) (*http.Response, string) {
		res, _ := send(a.Blob(), a.signed(http.MethodPut, blobPath+"?comp=blocklist", fmt.Sprintf("<BlockList><%[1]s>%[2]s</%[1]s></BlockList>",
			element, id)))
		_, body, _ := a.ReadBlob("records", "blob")
		return res, string(body)
	}
	stage("first")
	res, _ := commit("Committed")
	wantReply(t, "commit of a committed block while there is none", res, 400, "InvalidBlockList")
	res, _ = commit("Uncommitted")
	wantReply(t, "commit of a staged block", res, 201, "")
	stage("second")
	res, body := commit("Committed")
	wantReply(t, "commit of the committed block", res, 201, "")
	if body != "first" {
		t.Errorf("blob = %q after the commit of the committed block, want %q", body, "first")
	}
	res, _ = commit("Uncommitted")
	wantReply(t, "commit of a staged block that the last commit discarded", res, 400, "InvalidBlockList")
	stage("third")
	res, body = commit("Latest")
	wantReply(t, "commit of the latest block", res, 201, "")
	if body != "third" {
		t.Errorf("blob = %q after the commit of the latest block, want %q", body, "third")
	}
	res, _ = commit("Other")
	wantReply(t, "commit of an unknown element", res, 400, "InvalidXmlDocument")
}

func TestStatedHashesAreVerified(t *testing.T) {
	a := setup(t, Options{})
	good := []byte("text")
	tests := []struct {
		name, query, header, value, code string
	}{
		{"MD5", "", "Content-MD5", protocol.MD5(good), ""},
		{"another MD5", "", "Content-MD5", protocol.MD5([]byte("other")), "Md5Mismatch"},
		{"no MD5 at all", "", "Content-MD5", "AAAA", "InvalidMd5"},
		{"the blob's MD5", "", "x-ms-blob-content-md5", protocol.MD5([]byte("other")), "Md5Mismatch"},
		{"CRC64", "", "x-ms-content-crc64", protocol.CRC64(good), ""},
		{"another CRC64", "", "x-ms-content-crc64", protocol.CRC64([]byte("other")), "Crc64Mismatch"},
		{"MD5 of a block", "?comp=block&blockid=MQ%3D%3D", "Content-MD5", protocol.MD5([]byte("other")), "Md5Mismatch"},
		{"CRC64 of a block", "?comp=block&blockid=MQ%3D%3D", "x-ms-content-crc64", protocol.CRC64([]byte("other")), "Crc64Mismatch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, _ := send(a.Blob(), a.signed(http.MethodPut, blobPath+tt.query, string(good), "x-ms-blob-type", "BlockBlob", tt.header, tt.value))
			status := 400
			if tt.code == "" {
				status = 201
			}
			wantReply(t, "PUT", res, status, tt.code)
		})
	}
}

func TestRangeHashes(t *testing.T) {
	a := setup(t, Options{})
	if _, err := a.blob("blob").Upload(t.Context(), text("0123456789"), nil); err != nil {
		t.Fatalf("Upload: %v", err)
	}
	res, _ := send(a.Blob(), a.signed(http.MethodGet, blobPath, "", "x-ms-range", "bytes=2-4",
		"x-ms-range-get-content-md5", "true", "x-ms-range-get-content-crc64", "true"))
	if got, want := res.Header.Get("Content-MD5"), protocol.MD5([]byte("234")); got != want {
		t.Errorf("MD5 of the range = %s, want %s", got, want)
	}
	if got, want := res.Header.Get("x-ms-content-crc64"), protocol.CRC64([]byte("234")); got != want {
		t.Errorf("CRC64 of the range = %s, want %s", got, want)
	}
	if got, want := res.Header.Get("x-ms-blob-content-md5"), protocol.MD5([]byte("0123456789")); got != want {
		t.Errorf("MD5 of the blob = %s, want %s", got, want)
	}
}

func TestInspection(t *testing.T) {
	a := setup(t, Options{})
	b := a.blob("b")
	if _, err := b.StageBlock(t.Context(), blockID("1"), text("one"), nil); err != nil {
		t.Fatalf("StageBlock: %v", err)
	}
	if _, _, ok := a.ReadBlob("records", "b"); ok {
		t.Errorf("ReadBlob finds a blob that was never committed")
	}
	if _, err := b.CommitBlockList(t.Context(), []string{blockID("1")},
		&blockblob.CommitBlockListOptions{Metadata: map[string]*string{"Kind": new("k")}}); err != nil {
		t.Fatalf("CommitBlockList: %v", err)
	}
	state, body, ok := a.ReadBlob("records", "b")
	if !ok || string(body) != "one" {
		t.Fatalf("ReadBlob = %q, %t, want %q", body, ok, "one")
	}
	want := blobs.State{
		Name: "b", Committed: true, ContentType: "application/octet-stream", Size: 3,
		Metadata: map[string]string{"kind": "k"}, Blocks: []blobs.BlockState{{ID: blockID("1"), Size: 3}},
		ETag: state.ETag, LastModified: state.LastModified,
	}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if got := a.Counts(); got[blobs.OpGetBlob] != 0 || len(got) != 2 {
		t.Errorf("counts = %v, want those of the two writes: looking is no call", got)
	}
	if got, want := [2][]string{a.Queues(), a.Containers()}, [2][]string{{"jobs"}, {"records"}}; !cmp.Equal(got, want) {
		t.Errorf("queues and containers = %q, want %q", got, want)
	}
}
