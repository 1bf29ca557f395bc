package storage

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Error is a refusal by the service. Status and Code are those of the REST
// documentation's "Status and error codes" pages; Message is this package's
// own.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter goes out as the Retry-After header, rounded up to seconds.
	// Zero sends none.
	RetryAfter time.Duration

	header http.Header // further headers of this reply
}

// Error returns status, code and message in one line.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

// ServerBusy is the refusal of a service over its limits, for Fault.Refuse.
func ServerBusy(retryAfter time.Duration) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "ServerBusy", Message: "the service is over its limit", RetryAfter: retryAfter}
}

// because returns a copy of e with a detail after its message.
func (e *Error) because(format string, args ...any) *Error {
	c := *e
	c.Message += ": " + fmt.Sprintf(format, args...)
	return &c
}

// withHeader returns a copy of e whose reply carries one more header.
func (e *Error) withHeader(key, value string) *Error {
	c := *e
	c.header = e.header.Clone()
	if c.header == nil {
		c.header = make(http.Header)
	}
	c.header.Set(key, value)
	return &c
}

// retryAfterSeconds is the value of the Retry-After header.
func (e *Error) retryAfterSeconds() string {
	return strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))
}

func refusal(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// Refusals common to both services.
var (
	errInternal           = refusal(500, "InternalError", "the emulator failed")
	errNotImplemented     = refusal(501, "NotImplemented", "the emulator does not have this")
	errUnsupportedQuery   = refusal(400, "UnsupportedQueryParameter", "the emulator does not have this query parameter")
	errNoAuthentication   = refusal(401, "NoAuthenticationInformation", "the request has no Authorization header").withHeader("WWW-Authenticate", "SharedKey")
	errBadAuthentication  = refusal(400, "InvalidAuthenticationInfo", "the Authorization header is malformed")
	errBadToken           = refusal(401, "InvalidAuthenticationInfo", "the bearer token is not accepted")
	errNotAuthenticated   = refusal(403, "AuthenticationFailed", "the request is not authentic")
	errInvalidURI         = refusal(400, "InvalidUri", "the request URI is malformed")
	errInvalidName        = refusal(400, "InvalidResourceName", "the name has characters that it must not have")
	errNameLength         = refusal(400, "OutOfRangeInput", "the name is too short or too long")
	errInvalidHeader      = refusal(400, "InvalidHeaderValue", "a header's value is malformed")
	errMissingHeader      = refusal(400, "MissingRequiredHeader", "a required header is missing")
	errNoContentLength    = refusal(411, "MissingContentLengthHeader", "the request has no Content-Length")
	errMissingQuery       = refusal(400, "MissingRequiredQueryParameter", "a required query parameter is missing")
	errInvalidQuery       = refusal(400, "InvalidQueryParameterValue", "a query parameter's value is invalid")
	errQueryRange         = refusal(400, "OutOfRangeQueryParameterValue", "a query parameter's value is out of range")
	errBodyTooLarge       = refusal(413, "RequestBodyTooLarge", "the request's body is too large")
	errInvalidXML         = refusal(400, "InvalidXmlDocument", "the body is not well-formed XML of the expected kind")
	errInvalidMetadata    = refusal(400, "InvalidMetadata", "the metadata has a name or value that it must not have")
	errEmptyMetadataKey   = refusal(400, "EmptyMetadataKey", "a metadata name is empty")
	errMetadataTooLarge   = refusal(400, "MetadataTooLarge", "the metadata exceed 8 KiB")
	errConditionNotMet    = refusal(412, "ConditionNotMet", "a condition of the request is not met")
	errNotModified        = refusal(304, "ConditionNotMet", "the resource is unchanged")
	errMultipleConditions = refusal(400, "MultipleConditionHeadersNotSupported", "these condition headers cannot be combined")
	errUnsatisfiable      = refusal(400, "UnsatisfiableCondition", "the condition can never be met")
)

// Refusals of the queue service.
var (
	errQueueNotFound   = refusal(404, "QueueNotFound", "the queue does not exist")
	errQueueExists     = refusal(409, "QueueAlreadyExists", "the queue exists with other metadata")
	errMessageNotFound = refusal(404, "MessageNotFound", "the message does not exist")
	errReceiptMismatch = refusal(400, "PopReceiptMismatch", "the pop receipt is not the message's current one")
)

// Refusals of the blob service.
var (
	errContainerNotFound = refusal(404, "ContainerNotFound", "the container does not exist")
	errContainerExists   = refusal(409, "ContainerAlreadyExists", "the container exists")
	errBlobNotFound      = refusal(404, "BlobNotFound", "the blob does not exist")
	errBlobExists        = refusal(409, "BlobAlreadyExists", "the blob exists, or blocks were staged for it")
	errLeaseIDMissing    = refusal(412, "LeaseIdMissing", "the blob is leased, and the request has no lease id")
	errLeasePresent      = refusal(409, "LeaseAlreadyPresent", "the blob is leased already")
	errLeaseMismatch     = refusal(409, "LeaseIdMismatchWithLeaseOperation", "the lease id is not that of the blob's lease")
	errLeaseBroken       = refusal(409, "LeaseIsBrokenAndCannotBeRenewed", "the lease was broken")
	errLeaseNotPresent   = refusal(409, "LeaseNotPresentWithLeaseOperation", "the blob is not leased")
	errInvalidRange      = refusal(416, "InvalidRange", "the range begins past the end of the blob")
	errRangeHash         = refusal(400, "OutOfRangeInput", "a range hash is computed for at most 4 MiB")
	errInvalidMD5        = refusal(400, "InvalidMd5", "an MD5 header is not the base64 of 16 bytes")
	errMD5Mismatch       = refusal(400, "Md5Mismatch", "the body does not have the MD5 that the request states")
	errCRC64Mismatch     = refusal(400, "Crc64Mismatch", "the body does not have the CRC64 that the request states")
	errInvalidBlock      = refusal(400, "InvalidBlobOrBlock", "the block's id differs in length from the blob's other blocks")
	errInvalidBlockID    = refusal(400, "InvalidBlockId", "the block id is not base64 of 1 to 64 bytes")
	errInvalidBlockList  = refusal(400, "InvalidBlockList", "the block list names a block that the blob does not have")
	errBlockListTooLong  = refusal(400, "BlockListTooLong", "a blob has at most 50,000 blocks")
	errTooManyBlocks     = refusal(409, "RequestEntityTooLargeBlockCountExceedsLimit", "a blob has at most 100,000 staged blocks")
)
