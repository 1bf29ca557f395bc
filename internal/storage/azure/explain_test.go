package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// refusal returns the error of a real client whose call was refused.
func refusal(t *testing.T, e *storage.Error) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // the client's retries take no time
		server := storage.New(storage.Options{})
		server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Refuse: e} })
		account, connectErr := Connect(AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if connectErr != nil {
			t.Fatal(connectErr)
		}
		if _, err = account.Queue("jobs").EnqueueMessage(t.Context(), "x", nil); err == nil {
			t.Fatal("a refused call gave no error")
		}
	})
	return err
}

// noToken returns the error of a managed identity that the metadata endpoint
// refuses. The endpoint is a function here: nothing is sent.
func noToken(t *testing.T) error {
	t.Helper()
	t.Setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:1/token") // the App Service way, which does not probe
	t.Setenv("IDENTITY_HEADER", secret)
	account, err := Connect(AccountConfig{Account: "acct", ClientID: "00000000-0000-0000-0000-000000000001",
		Transport: answer(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Request: r, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(bytes.NewBufferString(`{"error":"invalid_request","error_description":"Identity not found"}`)),
			}, nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	_, err = account.Queue("jobs").GetProperties(t.Context(), nil)
	if _, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); !ok {
		t.Fatalf("a refused token = %v, want an AuthenticationFailedError", err)
	}
	return err
}

func TestExplain(t *testing.T) {
	signed := "https://acct.blob.core.windows.net/c/b?sv=2025&sig=" + secret
	for name, row := range map[string]struct {
		err  error
		want []string
	}{
		"plain":         {errors.New("no such file"), []string{"no such file"}},
		"several lines": {errors.New("first\n\tsecond\r\nthird"), []string{"first second third"}},
		"no role": {fmt.Errorf("claim from queue jobs: %w",
			refusal(t, &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: secret})),
			[]string{"claim from queue jobs: 403 AuthorizationPermissionMismatch: ", "Storage Queue Data Contributor"}},
		"wrong key": {refusal(t, &storage.Error{Status: 403, Code: "AuthenticationFailed", Message: secret}),
			[]string{"403 AuthenticationFailed", "clock"}},
		"network rules": {refusal(t, &storage.Error{Status: 403, Code: "AuthorizationFailure"}), []string{"network rules"}},
		"keys not allowed": {refusal(t, &storage.Error{Status: 403, Code: "KeyBasedAuthenticationNotPermitted"}),
			[]string{"managed identity"}},
		"no queue": {refusal(t, &storage.Error{Status: 404, Code: "QueueNotFound"}),
			[]string{"404 QueueNotFound", "does not exist"}},
		"a key": {refusal(t, &storage.Error{Status: 401, Code: "InvalidAuthenticationInfo"}),
			[]string{"401 InvalidAuthenticationInfo: the key of the connection string or the token is not right", "az login"}},
		"two of them": {errors.Join(refusal(t, &storage.Error{Status: 404, Code: "QueueNotFound"}), refusal(t, &storage.Error{Status: 503,
			Code: "ServerBusy"})), []string{"404 QueueNotFound: the queue", "; 503 ServerBusy: the storage service asks for fewer calls"}},
		"no container":                {refusal(t, &storage.Error{Status: 404, Code: "ContainerNotFound"}), []string{"does not exist"}},
		"busy":                        {refusal(t, storage.ServerBusy(0)), []string{"503 ServerBusy", "fewer calls"}},
		"code that speaks for itself": {refusal(t, &storage.Error{Status: 409, Code: "QueueBeingDeleted"}), []string{"409 QueueBeingDeleted"}},
		"of a proxy": {fmt.Errorf("save: %w", &azcore.ResponseError{StatusCode: 502}),
			[]string{"save: 502: not an answer of the storage service"}},
		"no token": {fmt.Errorf("claim: %w", noToken(t)),
			[]string{"claim: sign in as the identity 00000000-0000-0000-0000-000000000001: no token: "}},
		"no such host": {&url.Error{Op: "Get", URL: signed, Err: &net.DNSError{Err: "no such host", Name: "acct.blob.core.windows.net",
			IsNotFound: true}}, []string{"acct.blob.core.windows.net", "is the account's name right?"}},
		"no answer": {fmt.Errorf("save: %w", context.DeadlineExceeded), []string{"save: no answer in time"}},
		"cut off": {fmt.Errorf("save: %w", &url.Error{Op: "Put", URL: signed, Err: io.ErrUnexpectedEOF}),
			[]string{"save: Put", "https://acct.blob.core.windows.net/c/b", "unexpected EOF"}},
	} {
		got := Explain(row.err)
		for _, want := range row.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: Explain = %q, want it to hold %q", name, got, want)
			}
		}
		if strings.ContainsAny(got, "\r\n\t") || strings.Contains(got, "----") || strings.Contains(got, secret) || len(got) > 400 {
			t.Errorf("%s: Explain = %q, want one line without dump or secret", name, got)
		}
	}
}

// TestServiceMessage: the service's message about an API version is shown, and no message
// of another error, which may contain a secret.
func TestServiceMessage(t *testing.T) {
	old := "The API version 2026-02-06 is not supported by this emulator. Please upgrade."
	for code, want := range map[string]string{
		"InvalidHeaderValue":     "400 InvalidHeaderValue: " + old,
		"FeatureVersionMismatch": "400 FeatureVersionMismatch: " + old,
		"InvalidInput":           "400 InvalidInput",
	} {
		err := refusal(t, &storage.Error{Status: http.StatusBadRequest, Code: code, Message: old + "\nRequestId:1\nTime:2"})
		if got := Explain(err); got != want {
			t.Errorf("Explain of %s = %q, want %q", code, got, want)
		}
	}
	answered := func(body string) error {
		return &azcore.ResponseError{ErrorCode: "InvalidHeaderValue", StatusCode: http.StatusBadRequest, RawResponse: &http.Response{
			Request: &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "a"}}, Body: io.NopCloser(strings.NewReader(body)),
		}}
	}
	for body, want := range map[string]string{
		"\ufeff<Error><Message>Not in the correct format.\nTime:2</Message>" +
			"<HeaderName>x-ms-version</HeaderName><HeaderValue>2030-01-01</HeaderValue></Error>": "400 InvalidHeaderValue: " +
			"Not in the correct format. (x-ms-version: 2030-01-01)",
		"<Error><Message>Bad.</Message><HeaderName>Authorization</HeaderName><HeaderValue>" + secret +
			"</HeaderValue></Error>": "400 InvalidHeaderValue: Bad.",
		"<html>a proxy": "400 InvalidHeaderValue",
		"":              "400 InvalidHeaderValue",
	} {
		if got := Explain(answered(body)); got != want {
			t.Errorf("Explain of %q = %q, want %q", body, got, want)
		}
	}
}
