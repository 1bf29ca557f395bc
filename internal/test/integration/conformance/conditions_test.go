package conformance

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

var conditionCases = []testCase{
	{fact: "CreateOnlyOnAnExistingBlobIs409", check: createOnlyExisting},
	{fact: "CreateOnlyCreates", check: createOnlyCreates},
	{fact: "EveryWriteChangesTheETag", check: everyWriteNewETag},
	{fact: "WriteUnderTheCurrentETagSucceeds", check: writeUnderETag},
	{fact: "WriteUnderAStaleETagIs412", check: writeUnderStaleETag},
	{fact: "RefusedWriteChangesNothing", check: refusedWriteChangesNothing},
	{fact: "WriteUnderAnETagToAMissingBlobIs412", check: writeMissingUnderETag},
	{fact: "WriteIfUnmodifiedSince", check: writeIfUnmodifiedSince},
	{fact: "ReadUnderAStaleETagIs412", check: readUnderStaleETag},
	{fact: "ReadIfNoneMatchOfTheCurrentETagIs304", check: readNotModified},
	{fact: "ListedETagIsGoodAsACondition", check: listedETag},
	{fact: "DeleteUnderAStaleETagIs412", check: deleteUnderStaleETag},
}

func ifMatch(tag azcore.ETag) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &tag}}
}

func ifNoneMatch(tag azcore.ETag) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &tag}}
}

func createOnly() *blob.AccessConditions { return ifNoneMatch(azcore.ETagAny) }

// upload writes a blob and returns its ETag.
func upload(t *testing.T, b *blockblob.Client, text string) azcore.ETag {
	t.Helper()
	return *must(b.Upload(t.Context(), body(text), nil))(t, "Upload").ETag
}

// download reads a whole blob.
func download(t *testing.T, b *blockblob.Client) string {
	t.Helper()
	res := must(b.DownloadStream(t.Context(), nil))(t, "DownloadStream")
	data := must(io.ReadAll(res.Body))(t, "read body")
	if err := res.Body.Close(); err != nil {
		t.Fatalf("close body: %v", err)
	}
	return string(data)
}

func createOnlyExisting(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "first")
	_, err := b.Upload(t.Context(), body("second"), &blockblob.UploadOptions{AccessConditions: createOnly()})
	wantRefused(t, err, 409, "BlobAlreadyExists", "Upload with If-None-Match: *")
	_, err = b.CommitBlockList(t.Context(), nil, &blockblob.CommitBlockListOptions{AccessConditions: createOnly()})
	wantRefused(t, err, 409, "BlobAlreadyExists", "CommitBlockList with If-None-Match: *")
	if got := download(t, b); got != "first" {
		t.Errorf("blob = %q, want %q", got, "first")
	}
}

func createOnlyCreates(t *testing.T, e *env) {
	b := e.blob(t)
	must(b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{AccessConditions: createOnly()}))(t, "Upload with If-None-Match: *")
	if got := download(t, b); got != "text" {
		t.Errorf("blob = %q, want %q", got, "text")
	}
}

func everyWriteNewETag(t *testing.T, e *env) {
	b := e.blob(t)
	seen := make(map[azcore.ETag]string)
	note := func(what string, tag *azcore.ETag) {
		if earlier, again := seen[*tag]; again {
			t.Errorf("%s gave the ETag %s, which %s gave before", what, *tag, earlier)
		}
		seen[*tag] = what
	}
	note("Upload", must(b.Upload(t.Context(), body("a"), nil))(t, "Upload").ETag)
	note("Upload of the same", must(b.Upload(t.Context(), body("a"), nil))(t, "Upload").ETag)
	note("SetMetadata", must(b.SetMetadata(t.Context(), map[string]*string{"a": new("1")}, nil))(t, "SetMetadata").ETag)
	note("SetMetadata of the same", must(b.SetMetadata(t.Context(), map[string]*string{"a": new("1")}, nil))(t, "SetMetadata").ETag)
	note("CommitBlockList", must(b.CommitBlockList(t.Context(), nil, nil))(t, "CommitBlockList").ETag)
}

func writeUnderETag(t *testing.T, e *env) {
	b := e.blob(t)
	tag := upload(t, b, "1")
	tag = *must(b.Upload(t.Context(), body("2"), &blockblob.UploadOptions{AccessConditions: ifMatch(tag)}))(t, "Upload").ETag
	tag = *must(b.SetMetadata(t.Context(), nil, &blob.SetMetadataOptions{AccessConditions: ifMatch(tag)}))(t, "SetMetadata").ETag
	tag = *must(b.CommitBlockList(t.Context(), nil, &blockblob.CommitBlockListOptions{AccessConditions: ifMatch(tag)}))(t,
		"CommitBlockList").ETag
	must(b.Delete(t.Context(), &blob.DeleteOptions{AccessConditions: ifMatch(tag)}))(t, "Delete")
}

func writeUnderStaleETag(t *testing.T, e *env) {
	b := e.blob(t)
	stale := upload(t, b, "1")
	upload(t, b, "2")
	_, err := b.Upload(t.Context(), body("3"), &blockblob.UploadOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "Upload under a stale ETag")
	_, err = b.SetMetadata(t.Context(), nil, &blob.SetMetadataOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "SetMetadata under a stale ETag")
	_, err = b.CommitBlockList(t.Context(), nil, &blockblob.CommitBlockListOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "CommitBlockList under a stale ETag")
	if got := download(t, b); got != "2" {
		t.Errorf("blob = %q, want %q", got, "2")
	}
}

func refusedWriteChangesNothing(t *testing.T, e *env) {
	b := e.blob(t)
	stale := upload(t, b, "1")
	tag := upload(t, b, "2")
	_, err := b.SetMetadata(t.Context(), map[string]*string{"a": new("1")}, &blob.SetMetadataOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "SetMetadata under a stale ETag")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	if *props.ETag != tag || len(props.Metadata) != 0 {
		t.Errorf("after a refused write: ETag %s and %d metadata, want %s and none", *props.ETag, len(props.Metadata), tag)
	}
}

func writeMissingUnderETag(t *testing.T, e *env) {
	b := e.blob(t)
	_, err := b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{AccessConditions: ifMatch(`"0x8D0000000000000"`)})
	wantRefused(t, err, 412, "ConditionNotMet", "Upload of a new blob under an ETag")
	_, err = b.CommitBlockList(t.Context(), nil, &blockblob.CommitBlockListOptions{AccessConditions: ifMatch(`"0x8D0000000000000"`)})
	wantRefused(t, err, 412, "ConditionNotMet", "CommitBlockList of a new blob under an ETag")
}

func writeIfUnmodifiedSince(t *testing.T, e *env) {
	b := e.blob(t)
	modified := *must(b.Upload(t.Context(), body("1"), nil))(t, "Upload").LastModified
	since := func(at time.Time) *blockblob.UploadOptions {
		return &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfUnmodifiedSince: &at},
		}}
	}
	_, err := b.Upload(t.Context(), body("2"), since(modified.Add(-time.Second)))
	wantRefused(t, err, 412, "ConditionNotMet", "Upload if unmodified since before it was modified")
	must(b.Upload(t.Context(), body("2"), since(modified)))(t, "Upload if unmodified since it was modified")
}

func readUnderStaleETag(t *testing.T, e *env) {
	b := e.blob(t)
	stale := upload(t, b, "1")
	tag := upload(t, b, "2")
	_, err := b.DownloadStream(t.Context(), &blob.DownloadStreamOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "DownloadStream under a stale ETag")
	_, err = b.GetProperties(t.Context(), &blob.GetPropertiesOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "GetProperties under a stale ETag")
	must(b.GetProperties(t.Context(), &blob.GetPropertiesOptions{AccessConditions: ifMatch(tag)}))(t, "GetProperties under the current ETag")
}

// The SDK takes a 304 for a success of DownloadStream: who sends If-None-Match
// must look at the status.
func readNotModified(t *testing.T, e *env) {
	b := e.blob(t)
	tag := upload(t, b, "text")
	ctx, reply := withReply(t.Context())
	res, err := b.DownloadStream(ctx, &blob.DownloadStreamOptions{AccessConditions: ifNoneMatch(tag)})
	if err != nil {
		t.Fatalf("DownloadStream = %v, want no error", err)
	}
	_ = res.Body.Close()
	if got := reply().status; got != 304 {
		t.Errorf("status = %d, want 304", got)
	}
}

// A listing has ETags without quotes, and HTTP wants them in conditions.
func listedETag(t *testing.T, e *env) {
	c := e.container(t)
	b := c.NewBlockBlobClient("blob")
	upload(t, b, "text")
	page := must(c.NewListBlobsFlatPager(nil).NextPage(t.Context()))(t, "list blobs")
	tag := azcore.ETag(`"` + strings.Trim(string(*page.Segment.BlobItems[0].Properties.ETag), `"`) + `"`)
	must(b.SetMetadata(t.Context(), nil, &blob.SetMetadataOptions{AccessConditions: ifMatch(tag)}))(t, "SetMetadata under the listed ETag "+
		string(tag))
}

func deleteUnderStaleETag(t *testing.T, e *env) {
	b := e.blob(t)
	stale := upload(t, b, "1")
	upload(t, b, "2")
	_, err := b.Delete(t.Context(), &blob.DeleteOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "Delete under a stale ETag")
}

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
