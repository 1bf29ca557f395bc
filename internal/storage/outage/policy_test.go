package outage

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// transport answers with its own result.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

// replies answers with a status and the service's error code.
func replies(status int, code string) transport {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"X-Ms-Error-Code": {code}}, Body: http.NoBody, Request: r}, nil
	}
}

// TestPolicyReportsEnds: a call is reported once, with any number of retries, unless its
// caller cancelled it.
func TestPolicyReportsEnds(t *testing.T) {
	cut := errors.New("connection reset")
	cancelled, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		name string
		ctx  context.Context
		send transport
		want []Kind
	}{
		{"answered", t.Context(), replies(200, ""), []Kind{None}},
		{"a conflict", t.Context(), replies(412, "ConditionNotMet"), []Kind{None}},
		{"denied", t.Context(), replies(403, "AuthorizationFailure"), []Kind{Denied}},
		{"throttled at each try", t.Context(), replies(503, "ServerBusy"), []Kind{Throttled}},
		{"no connection at each try", t.Context(), func(*http.Request) (*http.Response, error) { return nil, cut }, []Kind{Unreachable}},
		{"cancelled", cancelled, func(*http.Request) (*http.Response, error) { cancel(); return nil, context.Canceled }, nil},
	} {
		var got []Kind
		p := Policy{Service: "blob", Operation: func(*http.Request) string { return "PutBlob" },
			Report: func(c Call) { got = append(got, c.Fault) }}
		pipeline := runtime.NewPipeline("test", "v0", runtime.PipelineOptions{PerCall: []policy.Policy{p}},
			&policy.ClientOptions{Transport: tt.send, Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond,
				MaxRetryDelay: time.Millisecond}})
		req, err := runtime.NewRequest(tt.ctx, http.MethodPut, "https://account.blob.core.windows.net/jobs/1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = pipeline.Do(req)
		if len(got) != len(tt.want) || len(got) > 0 && got[0] != tt.want[0] {
			t.Errorf("%s: reported %v, want %v", tt.name, got, tt.want)
		}
		if tt.name == "no connection at each try" && (Of(err) != Unreachable || !errors.Is(err, cut)) {
			t.Errorf("%s: error = %v, want an unanswered call with that cause", tt.name, err)
		}
	}
}
