package azure

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// meanings explains error codes of the storage service, where the name does not, and
// what to do.
var meanings = map[string]string{
	"AuthenticationFailed": "the key of the connection string or the token is not right for this account, or this machine's clock is off by " +
		"more than 15 minutes: check AZURE_STORAGE_CONNECTION_STRING, or AZURE_CLIENT_ID and the account's tenant (az login), then the clock",
	"AuthorizationFailure": "the storage account's network rules do not let this machine in",
	"AuthorizationPermissionMismatch": "the identity lacks a data role here: workers need Storage Queue Data Contributor and Storage " +
		"Blob Data Contributor; a new assignment takes up to 10 minutes",
	"InsufficientAccountPermissions":     "the identity lacks a data role here",
	"KeyBasedAuthenticationNotPermitted": "the account does not allow keys: use --account with a managed identity or your own sign-in",
	"QueueNotFound": "the queue does not exist: the deployment and the next put create it; messages of a deleted one " +
		"are lost",
	"ContainerNotFound": "the container does not exist: the deployment and the next put create it",
	"ServerBusy":        "the storage service asks for fewer calls",
}

// Explain returns err in one line, with an explanation of error codes of the storage
// service and the network.
func Explain(err error) string { return explain(err, "") }

// ExplainRole is Explain for a call that needs a role. If the service refused it for
// lack of one, the text names that role.
func ExplainRole(err error, role string) string { return explain(err, role) }

// LacksRole reports whether the service refused a call for lack of a role.
func LacksRole(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && slices.Contains(roleCodes, response.ErrorCode)
}

// IsSignIn reports whether the service did not accept the key or the token of a call.
func IsSignIn(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && (response.StatusCode == http.StatusUnauthorized || response.ErrorCode == "AuthenticationFailed")
}

// roleCodes are the codes of a refusal for lack of a role.
var roleCodes = []string{"AuthorizationPermissionMismatch", "InsufficientAccountPermissions"}

func explain(err error, role string) string {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var texts, explained []string
		for _, one := range all.Unwrap() {
			texts, explained = append(texts, one.Error()), append(explained, explain(one, role))
		}
		if strings.Join(texts, "\n") == err.Error() { // it is one of [errors.Join]
			return strings.Join(explained, "; ")
		}
	}
	text := withoutQuery(err)
	var response *azcore.ResponseError
	var dns *net.DNSError
	var signIn *azidentity.AuthenticationFailedError
	switch {
	case errors.As(err, &response):
		brief := fmt.Sprintf("%d %s", response.StatusCode, response.ErrorCode)
		if role != "" && LacksRole(err) {
			brief += ": the identity lacks the role " + role + "; a new assignment takes up to 10 minutes"
		} else if meaning := meanings[response.ErrorCode]; meaning != "" {
			brief += ": " + meaning
		} else if IsSignIn(err) {
			brief += ": " + meanings["AuthenticationFailed"]
		} else if said := sentence(response); said != "" {
			brief += ": " + said
		} else if response.ErrorCode == "" {
			brief = fmt.Sprintf("%d: not an answer of the storage service; a proxy or a gateway before it may have sent it", response.StatusCode)
		}
		text = strings.Replace(text, response.Error(), brief, 1)
	case errors.As(err, &signIn):
		text = strings.Replace(text, signIn.Error(), "no token: "+briefly(signIn), 1)
	case errors.As(err, &dns) && dns.IsNotFound:
		text = fmt.Sprintf("%s: there is no such host; is the account's name right?", firstLine(text))
	case errors.Is(err, context.DeadlineExceeded):
		text = strings.Replace(text, context.DeadlineExceeded.Error(), "no answer in time", 1)
	}
	return strings.Join(strings.Fields(text), " ") // on one line
}

// explained are codes that may mean an API version that the service does not know,
// from a newer SDK or with an older emulator. Only the service's message tells.
var explained = []string{"InvalidHeaderValue", "FeatureVersionMismatch"}

// longestSentence limits how much of the service's message is quoted, in bytes.
const longestSentence = 300

// sentence returns the service's own message about an error, and the header that it
// concerns. It is empty for errors whose code is sufficient.
func sentence(response *azcore.ResponseError) string {
	if response.RawResponse == nil || !slices.Contains(explained, response.ErrorCode) {
		return ""
	}
	body, err := runtime.Payload(response.RawResponse)
	if err != nil {
		return ""
	}
	var said struct{ Message, HeaderName, HeaderValue string }
	if xml.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &said) != nil {
		return ""
	}
	text := firstLine(said.Message)
	if said.HeaderName != "" && !strings.EqualFold(said.HeaderName, "Authorization") {
		text += fmt.Sprintf(" (%s: %s)", said.HeaderName, said.HeaderValue)
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text[:min(len(text), longestSentence)])
}

// withoutQuery returns the error's text without the query of a failed call's URL,
// which may contain a shared access signature.
func withoutQuery(err error) string {
	text := err.Error()
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return text
	}
	address, _, found := strings.Cut(failed.URL, "?")
	if !found {
		return text
	}
	return strings.ReplaceAll(text, failed.URL, address)
}

// briefly returns why a sign-in failed, without the advice that follows.
func briefly(signIn error) string {
	line, _, _ := strings.Cut(firstLine(signIn.Error()), ". To troubleshoot")
	return strings.ReplaceAll(line, context.DeadlineExceeded.Error(), "no answer in time")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
