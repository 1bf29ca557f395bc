package storage

import (
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// The words of the packages below that callers and their hooks need, so that they import
// this package only.
type (
	// Error is a refusal by the service.
	Error = protocol.Error
	// Range is a range of a blob's bytes.
	Range = protocol.Range
	// Message is the state of a message.
	Message = queues.Message
	// BlobState is the state of a blob.
	BlobState = blobs.State
)

// The services of an account.
const (
	BlobService  = protocol.BlobService
	QueueService = protocol.QueueService
)

// The operations that hooks ask for. Packages blobs and queues name them all.
const (
	OpCreateQueue      = queues.OpCreateQueue
	OpGetQueueMetadata = queues.OpGetQueueMetadata
	OpPutMessage       = queues.OpPutMessage
	OpGetMessages      = queues.OpGetMessages
	OpUpdateMessage    = queues.OpUpdateMessage
	OpDeleteMessage    = queues.OpDeleteMessage

	OpCreateContainer        = blobs.OpCreateContainer
	OpGetContainerProperties = blobs.OpGetContainerProperties
	OpListBlobs              = blobs.OpListBlobs
	OpPutBlob                = blobs.OpPutBlob
	OpGetBlob                = blobs.OpGetBlob
	OpGetBlobProperties      = blobs.OpGetBlobProperties
	OpSetBlobMetadata        = blobs.OpSetBlobMetadata
	OpDeleteBlob             = blobs.OpDeleteBlob
	OpPutBlock               = blobs.OpPutBlock
	OpPutBlockList           = blobs.OpPutBlockList
	OpGetBlockList           = blobs.OpGetBlockList
)

// ServerBusy is the refusal of a service over its limits, for Fault.Refuse.
func ServerBusy(retryAfter time.Duration) *Error { return protocol.ServerBusy(retryAfter) }
