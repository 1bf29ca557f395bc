package storage

// Service names one of the account's two services.
type Service string

// The services of an account.
const (
	BlobService  Service = "blob"
	QueueService Service = "queue"
)

// Operations, by the names that the REST documentation gives them without
// spaces. OpUnknown stands for a request that names none of them.
const (
	OpUnknown = "Unknown"

	OpListQueues       = "ListQueues"
	OpCreateQueue      = "CreateQueue"
	OpDeleteQueue      = "DeleteQueue"
	OpGetQueueMetadata = "GetQueueMetadata"
	OpSetQueueMetadata = "SetQueueMetadata"
	OpPutMessage       = "PutMessage"
	OpGetMessages      = "GetMessages"
	OpPeekMessages     = "PeekMessages"
	OpUpdateMessage    = "UpdateMessage"
	OpDeleteMessage    = "DeleteMessage"
	OpClearMessages    = "ClearMessages"

	OpListContainers         = "ListContainers"
	OpCreateContainer        = "CreateContainer"
	OpDeleteContainer        = "DeleteContainer"
	OpGetContainerProperties = "GetContainerProperties"
	OpGetContainerMetadata   = "GetContainerMetadata"
	OpSetContainerMetadata   = "SetContainerMetadata"
	OpListBlobs              = "ListBlobs"
	OpPutBlob                = "PutBlob"
	OpGetBlob                = "GetBlob"
	OpGetBlobProperties      = "GetBlobProperties"
	OpGetBlobMetadata        = "GetBlobMetadata"
	OpSetBlobMetadata        = "SetBlobMetadata"
	OpDeleteBlob             = "DeleteBlob"
	OpLeaseBlob              = "LeaseBlob"
	OpPutBlock               = "PutBlock"
	OpPutBlockList           = "PutBlockList"
	OpGetBlockList           = "GetBlockList"
)
