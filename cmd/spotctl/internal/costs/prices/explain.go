package prices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// longestQuote limits how much of a service's own message is quoted, in bytes.
const longestQuote = 200

// explain returns why a source failed and what to do, in words. role is the role that the
// source needs.
func explain(err error, role string) string {
	var before string
	if page, ok := errors.AsType[*pageError](err); ok {
		before = fmt.Sprintf("page %d failed, what was on the pages before is shown: ", page.page)
		err = page.err
	}
	return before + plaintext.Line(reason(err, role))
}

func reason(err error, role string) string {
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return refusal(refused, role)
	}
	var dns *net.DNSError
	var op *net.OpError
	var failed *url.Error
	host := "the service"
	if errors.As(err, &failed) {
		if u, parseErr := url.Parse(failed.URL); parseErr == nil {
			host = u.Host
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: try again, or give a longer --timeout"
	case errors.As(err, &dns):
		return "no network: the name " + dns.Name + " cannot be resolved"
	case errors.As(err, &op), failed != nil:
		return "no network: " + host + " cannot be reached; is a proxy needed (HTTPS_PROXY)?"
	}
	if unreadable, ok := errors.AsType[*unreadableError](err); ok {
		return unreadable.Error() + "; is there a proxy in between?"
	}
	return cut(err.Error())
}

// refusal explains an answer that is an error.
func refusal(refused *azcore.ResponseError, role string) string {
	switch refused.StatusCode {
	case http.StatusUnauthorized:
		return "the sign-in is not accepted: sign in to the subscription's tenant, az login --tenant TENANT" + quote(refused)
	case http.StatusForbidden:
		if role == "" {
			return "access is refused; is there a proxy in between?" + quote(refused)
		}
		return "the signed-in identity lacks the role " + role + "; a new assignment takes up to 10 minutes"
	case http.StatusTooManyRequests:
		text := "the service asks for fewer requests: try again later"
		if resp := refused.RawResponse; resp != nil && resp.Header.Get("Retry-After") != "" {
			text += " (it says after " + resp.Header.Get("Retry-After") + " s)"
		}
		return text
	}
	if refused.ErrorCode == "SubscriptionNotFound" || refused.ErrorCode == "InvalidSubscriptionId" {
		return "the subscription does not exist, or not in the tenant that you are signed in to"
	}
	if refused.StatusCode >= 500 {
		return fmt.Sprintf("the service has a problem (%d): try again later", refused.StatusCode) + quote(refused)
	}
	return strings.TrimSpace(fmt.Sprintf("the service refused the request: %d %s", refused.StatusCode, refused.ErrorCode)) + quote(refused)
}

// quote returns the service's own message.
func quote(refused *azcore.ResponseError) string {
	if refused.RawResponse == nil {
		return ""
	}
	body, err := runtime.Payload(refused.RawResponse)
	if err != nil {
		return ""
	}
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message+said.Message == "" {
		return ""
	}
	return ": " + cut(said.Error.Message+said.Message)
}

// cut returns the start of the first line of a text.
func cut(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(line)
	if len(line) > longestQuote {
		line = strings.ToValidUTF8(line[:longestQuote], "") + "…"
	}
	return line
}
