package azure

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// errForeign is the error of an answer that something between this machine and the
// storage service has sent.
var errForeign = errors.New("its request id is missing, so a proxy or a gateway may have sent it")

// checked returns an answer of the storage service. A success that lacks the service's request
// id is an error of the connection: the SDK would take a sign-in page for an empty result, and
// callers for a state of the account.
func checked(r *http.Request, resp *http.Response) (*http.Response, error) {
	if resp.StatusCode >= http.StatusMultipleChoices || resp.Header.Get("X-Ms-Request-Id") != "" {
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, &url.Error{Op: r.Method, URL: r.URL.String(), Err: fmt.Errorf("answered %d, but not by the storage service: %w",
		resp.StatusCode, errForeign)}
}
