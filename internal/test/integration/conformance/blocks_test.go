package conformance

import (
	"encoding/base64"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

var blockCases = []testCase{
	{fact: "CommitMakesTheBlobFromItsBlocksInOrder", check: commitInOrder},
	{fact: "CommitMayNameABlockTwice", check: commitTwice},
	{fact: "CommitMixesCommittedAndFreshBlocks", check: commitMixed},
	{fact: "CommitOfAnUnknownBlockIs400", check: commitUnknown},
	{fact: "CommitSetsMetadata", check: commitSetsMetadata},
	{fact: "CommitDiscardsStagedBlocksItDoesNotName", check: commitDiscards},
	{fact: "StaleCommitIs412AndDiscardsNothing", check: staleCommit},
	{fact: "StagedBlocksDoNotShow", check: stagedInvisible},
	{fact: "StagedBlocksMakeAnUploadThatCreatesFail", check: stagedBlocksCreate},
	{fact: "StagedBlocksLetACommitThatCreatesSucceed", check: stagedCommitCreates},
	{fact: "StagedOnlyBlobCannotBeDeleted", check: stagedOnlyDelete},
	{fact: "UploadEmptiesTheCommittedBlockList", check: uploadEmptiesList},
	{fact: "UploadDiscardsStagedBlocks", check: uploadDiscardsStaged},
	{fact: "SetMetadataKeepsBodyCommittedAndStagedBlocks", check: metadataKeepsBlocks},
	{fact: "StagingAgainReplacesTheBlock", check: stageAgain},
	{fact: "StagedBlockIDsHaveOneLength", check: stagedIDLength},
	{fact: "AllBlockIDsOfABlobHaveOneLength", check: committedIDLength},
	{fact: "BlockIDMustBeBase64OfAtMost64Bytes", check: blockIDForm},
}

// blockID makes a block id out of some characters.
func blockID(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func stage(t *testing.T, b *blockblob.Client, id, text string) {
	t.Helper()
	must(b.StageBlock(t.Context(), id, body(text), nil))(t, "StageBlock")
}

// commit commits blocks and returns nothing: the case continues with the blob.
func commit(t *testing.T, b *blockblob.Client, ids ...string) blockblob.CommitBlockListResponse {
	t.Helper()
	return must(b.CommitBlockList(t.Context(), ids, nil))(t, "CommitBlockList")
}

// blockLists returns the ids of the committed and of the staged blocks.
func blockLists(t *testing.T, b *blockblob.Client) (committed, staged []string) {
	t.Helper()
	res := must(b.GetBlockList(t.Context(), blockblob.BlockListTypeAll, nil))(t, "GetBlockList")
	for _, x := range res.CommittedBlocks {
		committed = append(committed, *x.Name)
	}
	for _, x := range res.UncommittedBlocks {
		staged = append(staged, *x.Name)
	}
	return committed, staged
}

func wantBlocks(t *testing.T, b *blockblob.Client, committed, staged []string) {
	t.Helper()
	gotCommitted, gotStaged := blockLists(t, b)
	if !slices.Equal(gotCommitted, committed) || !slices.Equal(gotStaged, staged) {
		t.Errorf("blocks = %q committed and %q staged, want %q and %q", gotCommitted, gotStaged, committed, staged)
	}
}

func wantBody(t *testing.T, b *blockblob.Client, want string) {
	t.Helper()
	if got := download(t, b); got != want {
		t.Errorf("blob = %q, want %q", got, want)
	}
}

func commitInOrder(t *testing.T, e *env) {
	b := e.blob(t)
	one, two := blockID("1"), blockID("2")
	stage(t, b, one, "one ")
	stage(t, b, two, "two ")
	commit(t, b, two, one)
	wantBody(t, b, "two one ")
	wantBlocks(t, b, []string{two, one}, nil)
}

func commitTwice(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one ")
	commit(t, b, one, one)
	wantBody(t, b, "one one ")
	wantBlocks(t, b, []string{one, one}, nil)
}

func commitMixed(t *testing.T, e *env) {
	b := e.blob(t)
	one, two, three := blockID("1"), blockID("2"), blockID("3")
	stage(t, b, one, "one ")
	stage(t, b, two, "two ")
	commit(t, b, one, two)
	stage(t, b, three, "three ")
	commit(t, b, one, three, one)
	wantBody(t, b, "one three one ")
	wantBlocks(t, b, []string{one, three, one}, nil)
}

func commitUnknown(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one")
	_, err := b.CommitBlockList(t.Context(), []string{one, blockID("2")}, nil)
	wantRefused(t, err, 400, "InvalidBlockList", "CommitBlockList of a block that was not staged")
	wantBlocks(t, b, nil, []string{one})
}

func commitSetsMetadata(t *testing.T, e *env) {
	b := e.blob(t)
	must(b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{Metadata: map[string]*string{"old": new("1")}}))(t, "Upload")
	must(b.CommitBlockList(t.Context(), nil, &blockblob.CommitBlockListOptions{Metadata: map[string]*string{"new": new("2")}}))(t,
		"CommitBlockList")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{"new": "2"})
}

func commitDiscards(t *testing.T, e *env) {
	b := e.blob(t)
	one, two := blockID("1"), blockID("2")
	stage(t, b, one, "one")
	stage(t, b, two, "two")
	commit(t, b, one)
	wantBlocks(t, b, []string{one}, nil)
}

// A worker that lost its job may still commit; the owner's staged blocks must
// survive it.
func staleCommit(t *testing.T, e *env) {
	b := e.blob(t)
	stale := upload(t, b, "before")
	one, two := blockID("1"), blockID("2")
	must(b.SetMetadata(t.Context(), nil, nil))(t, "SetMetadata")
	stage(t, b, one, "one")
	stage(t, b, two, "two")
	_, err := b.CommitBlockList(t.Context(), []string{one}, &blockblob.CommitBlockListOptions{AccessConditions: ifMatch(stale)})
	wantRefused(t, err, 412, "ConditionNotMet", "CommitBlockList under a stale ETag")
	wantBody(t, b, "before")
	wantBlocks(t, b, nil, []string{one, two})
}

func stagedInvisible(t *testing.T, e *env) {
	c := e.container(t)
	b := c.NewBlockBlobClient("blob")
	one := blockID("1")
	stage(t, b, one, "one")
	_, err := b.GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "GetProperties of a blob with staged blocks only")
	_, err = b.DownloadStream(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "DownloadStream of a blob with staged blocks only")
	page := must(c.NewListBlobsFlatPager(nil).NextPage(t.Context()))(t, "list blobs")
	if n := len(page.Segment.BlobItems); n != 0 {
		t.Errorf("listed %d blobs, want 0", n)
	}
	wantBlocks(t, b, nil, []string{one})
}

func stagedBlocksCreate(t *testing.T, e *env) {
	b := e.blob(t)
	stage(t, b, blockID("1"), "one")
	_, err := b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{AccessConditions: createOnly()})
	wantRefused(t, err, 409, "BlobAlreadyExists", "Upload with If-None-Match: * after StageBlock")
}

func stagedCommitCreates(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one")
	must(b.CommitBlockList(t.Context(), []string{one}, &blockblob.CommitBlockListOptions{AccessConditions: createOnly()}))(t,
		"CommitBlockList with If-None-Match: *")
	wantBody(t, b, "one")
}

func stagedOnlyDelete(t *testing.T, e *env) {
	b := e.blob(t)
	stage(t, b, blockID("1"), "one")
	_, err := b.Delete(t.Context(), nil)
	e.wantStrict(t, uncommittedDelete, err, 404, "BlobNotFound", "Delete of a blob with staged blocks only")
}

func uploadEmptiesList(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one")
	commit(t, b, one)
	upload(t, b, "text")
	wantBlocks(t, b, nil, nil)
	_, err := b.CommitBlockList(t.Context(), []string{one}, nil)
	wantRefused(t, err, 400, "InvalidBlockList", "CommitBlockList of a block from before an Upload")
}

func uploadDiscardsStaged(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one")
	upload(t, b, "text")
	_, err := b.CommitBlockList(t.Context(), []string{one}, nil)
	e.wantStrict(t, putBlobKeepsStaged, err, 400, "InvalidBlockList", "CommitBlockList of a block staged before an Upload")
}

func metadataKeepsBlocks(t *testing.T, e *env) {
	b := e.blob(t)
	one, two := blockID("1"), blockID("2")
	stage(t, b, one, "one")
	tag := *commit(t, b, one).ETag
	stage(t, b, two, "two")
	must(b.SetMetadata(t.Context(), map[string]*string{"a": new("1")}, &blob.SetMetadataOptions{AccessConditions: ifMatch(tag)}))(t,
		"SetMetadata")
	wantBody(t, b, "one")
	wantBlocks(t, b, []string{one}, []string{two})
	commit(t, b, one, two)
	wantBody(t, b, "onetwo")
}

func stageAgain(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "before")
	stage(t, b, one, "after")
	wantBlocks(t, b, nil, []string{one})
	commit(t, b, one)
	wantBody(t, b, "after")
}

func stagedIDLength(t *testing.T, e *env) {
	b := e.blob(t)
	stage(t, b, blockID("1"), "one")
	_, err := b.StageBlock(t.Context(), blockID("22"), body("two"), nil)
	wantRefused(t, err, 400, "InvalidBlobOrBlock", "StageBlock with an id of another length than a staged one")
}

func committedIDLength(t *testing.T, e *env) {
	b := e.blob(t)
	one := blockID("1")
	stage(t, b, one, "one")
	commit(t, b, one)
	_, err := b.StageBlock(t.Context(), blockID("22"), body("two"), nil)
	e.wantStrict(t, committedBlockIDLength, err, 400, "InvalidBlobOrBlock", "StageBlock with an id of another length than a committed one")
}

func blockIDForm(t *testing.T, e *env) {
	b := e.blob(t)
	_, err := b.StageBlock(t.Context(), "no base64!", body("one"), nil)
	wantRefused(t, err, 400, "", "StageBlock with an id that is not base64")
	_, err = b.StageBlock(t.Context(), blockID(string(make([]byte, 65))), body("one"), nil)
	wantRefused(t, err, 400, "", "StageBlock with an id of 65 bytes")
}
