package conformance

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

var leaseCases = []testCase{
	{fact: "WriteOfALeasedBlobIs412", check: writeLeased},
	{fact: "ReadOfALeasedBlobTellsOfTheLease", check: readLeased},
	{fact: "ConditionsComeBeforeTheLease", check: conditionsBeforeLease},
	{fact: "LeaseEndsWithItsReleaseOrBreak", check: leaseEnds},
	{fact: "LeaseIsOneHoldersAlone", check: leaseHeld},
}

// leased makes a blob and a lease on it that does not end.
func leased(t *testing.T, e *env) (*blockblob.Client, *lease.BlobClient) {
	t.Helper()
	b := e.blob(t)
	upload(t, b, "content")
	l := must(lease.NewBlobClient(b, nil))(t, "lease client")
	must(l.AcquireLease(t.Context(), -1, nil))(t, "AcquireLease")
	return b, l
}

func writeLeased(t *testing.T, e *env) {
	b, _ := leased(t, e)
	before := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	const id = "YmxvY2s=" // "block" in base64
	_, err := b.Upload(t.Context(), body("other"), nil)
	wantRefused(t, err, 412, "LeaseIdMissing", "Upload")
	_, err = b.SetMetadata(t.Context(), map[string]*string{"k": new("v")}, nil)
	wantRefused(t, err, 412, "LeaseIdMissing", "SetMetadata")
	_, err = b.SetMetadata(t.Context(), map[string]*string{"k": new("v")}, &blob.SetMetadataOptions{AccessConditions: ifMatch(*before.ETag)})
	wantRefused(t, err, 412, "LeaseIdMissing", "SetMetadata under the current ETag")
	_, err = b.StageBlock(t.Context(), id, body("block"), nil)
	wantRefused(t, err, 412, "LeaseIdMissing", "StageBlock")
	_, err = b.CommitBlockList(t.Context(), nil, nil)
	wantRefused(t, err, 412, "LeaseIdMissing", "CommitBlockList")
	_, err = b.Delete(t.Context(), nil)
	wantRefused(t, err, 412, "LeaseIdMissing", "Delete")
	if after := must(b.GetProperties(t.Context(), nil))(t, "GetProperties"); *after.ETag != *before.ETag {
		t.Errorf("ETag after refused writes = %s, want %s", *after.ETag, *before.ETag)
	}
}

func readLeased(t *testing.T, e *env) {
	b, l := leased(t, e)
	if got := download(t, b); got != "content" {
		t.Errorf("content = %q, want it readable", got)
	}
	p := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	if *p.LeaseState != lease.StateTypeLeased || *p.LeaseStatus != lease.StatusTypeLocked {
		t.Errorf("lease = %s, %s, want leased, locked", *p.LeaseState, *p.LeaseStatus)
	}
	must(l.ReleaseLease(t.Context(), nil))(t, "ReleaseLease")
	p = must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	if *p.LeaseState != lease.StateTypeAvailable || *p.LeaseStatus != lease.StatusTypeUnlocked {
		t.Errorf("lease after its release = %s, %s, want available, unlocked", *p.LeaseState, *p.LeaseStatus)
	}
}

func conditionsBeforeLease(t *testing.T, e *env) {
	b, _ := leased(t, e)
	_, err := b.Upload(t.Context(), body("other"), &blockblob.UploadOptions{AccessConditions: ifMatch(`"0xOLD"`)})
	wantRefused(t, err, 412, "ConditionNotMet", "Upload under a stale ETag")
	_, err = b.Upload(t.Context(), body("other"), &blockblob.UploadOptions{AccessConditions: createOnly()})
	wantRefused(t, err, 409, "BlobAlreadyExists", "Upload with If-None-Match: *")
}

func leaseEnds(t *testing.T, e *env) {
	b, l := leased(t, e)
	must(l.ReleaseLease(t.Context(), nil))(t, "ReleaseLease")
	upload(t, b, "after the release")
	must(l.AcquireLease(t.Context(), 60, nil))(t, "AcquireLease")
	must(l.RenewLease(t.Context(), nil))(t, "RenewLease")
	must(l.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32(0))}))(t, "BreakLease")
	upload(t, b, "after the break")
}

func leaseHeld(t *testing.T, e *env) {
	b, _ := leased(t, e)
	other := must(lease.NewBlobClient(b, nil))(t, "lease client")
	_, err := other.AcquireLease(t.Context(), -1, nil)
	wantRefused(t, err, 409, "LeaseAlreadyPresent", "AcquireLease by another")
	_, err = other.ReleaseLease(t.Context(), nil)
	wantRefused(t, err, 409, "LeaseIdMismatchWithLeaseOperation", "ReleaseLease by another")
}
