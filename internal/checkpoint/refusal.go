package checkpoint

import (
	"errors"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// permanentRefusals are the answers by which the blob service refuses one blob until
// somebody changes something about that blob: no read decides them, and no repeat
// within minutes changes them. They say nothing about other blobs, unlike a
// missing role or a container that is gone.
var permanentRefusals = []bloberror.Code{
	bloberror.LeaseIDMissing,           // somebody holds a lease on it
	bloberror.BlobArchived,             // it is in the archive tier
	bloberror.BlobBeingRehydrated,      // and on its way back, for hours
	bloberror.BlobImmutableDueToPolicy, // a retention policy or a legal hold
	bloberror.InvalidBlobType,          // it is a page or append blob of somebody's
	bloberror.SnapshotsPresent,         // it cannot be deleted before its snapshots
	bloberror.PendingCopyOperation,     // somebody copies something onto it
	bloberror.BlobUsesCustomerSpecifiedEncryption,
}

// PermanentRefusals returns the codes that [PermanentRefusal] can return.
func PermanentRefusals() (codes []string) {
	for _, code := range permanentRefusals {
		codes = append(codes, string(code))
	}
	return codes
}

// PermanentRefusal returns the service's error code if err is its refusal of one blob
// that lasts, and "" otherwise.
func PermanentRefusal(err error) string {
	var response *azcore.ResponseError
	if errors.As(err, &response) && slices.Contains(permanentRefusals, bloberror.Code(response.ErrorCode)) {
		return response.ErrorCode
	}
	return ""
}
