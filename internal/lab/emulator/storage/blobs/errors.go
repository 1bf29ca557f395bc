package blobs

import (
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// Refusals of the blob service.
var (
	errContainerNotFound = protocol.Refusal(404, "ContainerNotFound", "the container does not exist")
	errContainerExists   = protocol.Refusal(409, "ContainerAlreadyExists", "the container exists")
	errBlobNotFound      = protocol.Refusal(404, "BlobNotFound", "the blob does not exist")
	errBlobExists        = protocol.Refusal(409, "BlobAlreadyExists", "the blob exists, or blocks were staged for it")
	errLeaseIDMissing    = protocol.Refusal(412, "LeaseIdMissing", "the blob is leased, and the request has no lease id")
	errLeasePresent      = protocol.Refusal(409, "LeaseAlreadyPresent", "the blob is leased already")
	errLeaseMismatch     = protocol.Refusal(409, "LeaseIdMismatchWithLeaseOperation", "the lease id is not that of the blob's lease")
	errLeaseBroken       = protocol.Refusal(409, "LeaseIsBrokenAndCannotBeRenewed", "the lease was broken")
	errLeaseNotPresent   = protocol.Refusal(409, "LeaseNotPresentWithLeaseOperation", "the blob is not leased")
	errInvalidRange      = protocol.Refusal(416, "InvalidRange", "the range begins past the end of the blob")
	errRangeHash         = protocol.Refusal(400, "OutOfRangeInput", "a range hash is computed for at most 4 MiB")
	errInvalidBlock      = protocol.Refusal(400, "InvalidBlobOrBlock", "the block's id differs in length from the blob's other blocks")
	errInvalidBlockID    = protocol.Refusal(400, "InvalidBlockId", "the block id is not base64 of 1 to 64 bytes")
	errInvalidBlockList  = protocol.Refusal(400, "InvalidBlockList", "the block list names a block that the blob does not have")
	errBlockListTooLong  = protocol.Refusal(400, "BlockListTooLong", "a blob has at most 50,000 blocks")
	errTooManyBlocks     = protocol.Refusal(409, "RequestEntityTooLargeBlockCountExceedsLimit", "a blob has at most 100,000 staged blocks")
)
