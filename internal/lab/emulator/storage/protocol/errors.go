package protocol

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Error is a refusal by the service. Status and Code are from the REST documentation's
// "Status and error codes" pages; Message is this package's own.
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

// Because returns a copy of e with a detail after its message.
func (e *Error) Because(format string, args ...any) *Error {
	c := *e
	c.Message += ": " + fmt.Sprintf(format, args...)
	return &c
}

// WithHeader returns a copy of e whose reply carries one more header.
func (e *Error) WithHeader(key, value string) *Error {
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

// Refusal returns an error with a status and a code of the REST documentation.
func Refusal(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// Refusals common to both services.
var (
	ErrInternal         = Refusal(500, "InternalError", "the emulator failed")
	ErrNotImplemented   = Refusal(501, "NotImplemented", "the emulator does not have this")
	ErrUnsupportedQuery = Refusal(400, "UnsupportedQueryParameter", "the emulator does not have this query parameter")
	ErrNoAuthentication = Refusal(401, "NoAuthenticationInformation",
		"the request has no Authorization header").WithHeader("WWW-Authenticate", "SharedKey")
	ErrBadAuthentication  = Refusal(400, "InvalidAuthenticationInfo", "the Authorization header is malformed")
	ErrBadToken           = Refusal(401, "InvalidAuthenticationInfo", "the bearer token is not accepted")
	ErrNotAuthenticated   = Refusal(403, "AuthenticationFailed", "the request is not authentic")
	ErrInvalidURI         = Refusal(400, "InvalidUri", "the request URI is malformed")
	errInvalidName        = Refusal(400, "InvalidResourceName", "the name has characters that it must not have")
	errNameLength         = Refusal(400, "OutOfRangeInput", "the name is too short or too long")
	ErrInvalidHeader      = Refusal(400, "InvalidHeaderValue", "a header's value is malformed")
	ErrMissingHeader      = Refusal(400, "MissingRequiredHeader", "a required header is missing")
	errNoContentLength    = Refusal(411, "MissingContentLengthHeader", "the request has no Content-Length")
	ErrMissingQuery       = Refusal(400, "MissingRequiredQueryParameter", "a required query parameter is missing")
	ErrInvalidQuery       = Refusal(400, "InvalidQueryParameterValue", "a query parameter's value is invalid")
	errQueryRange         = Refusal(400, "OutOfRangeQueryParameterValue", "a query parameter's value is out of range")
	ErrBodyTooLarge       = Refusal(413, "RequestBodyTooLarge", "the request's body is too large")
	ErrInvalidXML         = Refusal(400, "InvalidXmlDocument", "the body is not well-formed XML of the expected kind")
	errInvalidMetadata    = Refusal(400, "InvalidMetadata", "the metadata has a name or value that it must not have")
	errEmptyMetadataKey   = Refusal(400, "EmptyMetadataKey", "a metadata name is empty")
	errMetadataTooLarge   = Refusal(400, "MetadataTooLarge", "the metadata exceed 8 KiB")
	ErrConditionNotMet    = Refusal(412, "ConditionNotMet", "a condition of the request is not met")
	ErrNotModified        = Refusal(304, "ConditionNotMet", "the resource is unchanged")
	ErrMultipleConditions = Refusal(400, "MultipleConditionHeadersNotSupported", "these condition headers cannot be combined")
	ErrUnsatisfiable      = Refusal(400, "UnsatisfiableCondition", "the condition can never be met")
	errInvalidMD5         = Refusal(400, "InvalidMd5", "an MD5 header is not the base64 of 16 bytes")
	errMD5Mismatch        = Refusal(400, "Md5Mismatch", "the body does not have the MD5 that the request states")
	errCRC64Mismatch      = Refusal(400, "Crc64Mismatch", "the body does not have the CRC64 that the request states")
)
