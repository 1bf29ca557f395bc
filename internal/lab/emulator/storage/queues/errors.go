package queues

import (
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// Refusals of the queue service.
var (
	errQueueNotFound   = protocol.Refusal(404, "QueueNotFound", "the queue does not exist")
	errQueueExists     = protocol.Refusal(409, "QueueAlreadyExists", "the queue exists with other metadata")
	errMessageNotFound = protocol.Refusal(404, "MessageNotFound", "the message does not exist")
	errReceiptMismatch = protocol.Refusal(400, "PopReceiptMismatch", "the pop receipt is not the message's current one")
)
