package conformance

import (
	"slices"
	"testing"
)

// Where Azurite 3.37.0 accepts more than Azure, each with what is known.
const (
	// MetadataEmptyValues: Azure refuses a metadata value that is empty;
	// Azurite takes it.
	MetadataEmptyValues Laxity = "empty metadata values are taken"
	// MetadataSize: Azure refuses more than 8 KiB in all; Azurite has no
	// limit but that of its HTTP server.
	MetadataSize Laxity = "the size of metadata is not limited"
	// NamesAsWritten: a backslash or a dot segment does not reach Azure as
	// written; our emulator refuses such a name where Azurite, like Azure,
	// silently takes it for another one.
	NamesAsWritten Laxity = "names that do not survive the trip are taken for others"
	// BlobNameLength: Azure's blob names have at most 1,024 characters;
	// Azurite has no limit but that of its HTTP server.
	BlobNameLength Laxity = "the length of blob names is not limited"
	// PutBlobKeepsStaged: Put Blob discards what was staged before
	// ("Put Block", remarks); Azurite keeps it.
	PutBlobKeepsStaged Laxity = "Put Blob keeps staged blocks"
	// CommittedBlockIDLength: all block ids of a blob have one length ("Put
	// Block", URI parameters); Azurite compares with staged blocks only.
	CommittedBlockIDLength Laxity = "a staged block's id may differ in length from committed ones"
	// RangeAtTheEnd: a range that begins at a blob's length has no byte in
	// the blob; Azurite serves it as an empty one.
	RangeAtTheEnd Laxity = "a range may begin at the end of the blob"
	// UncommittedDelete: a blob without a committed version is not found;
	// Azurite deletes it.
	UncommittedDelete Laxity = "a blob that was never committed can be deleted"
)

// lax reports whether the target is known to be lax in this.
func (e *env) lax(l Laxity) bool {
	return slices.Contains(e.target.Lax, l)
}

// wantStrict demands the refusal of a strict target and a success of one that
// is known to be lax.
func (e *env) wantStrict(t *testing.T, l Laxity, err error, status int, code, doing string) {
	t.Helper()
	if !e.lax(l) {
		wantRefused(t, err, status, code, doing)
		return
	}
	if err != nil {
		t.Errorf("%s = %v, want success on a target known to be lax (%s): take it off the list", doing, err, l)
	}
}
