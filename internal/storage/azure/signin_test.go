package azure

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// silent is a token endpoint that does not answer until answers is set.
type silent struct {
	asked   int
	answers bool
}

func (s *silent) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	s.asked++
	if s.answers {
		return azcore.AccessToken{Token: "t", ExpiresOn: time.Now().Add(time.Hour)}, nil
	}
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

// signsIn returns a call that needs a token of that endpoint.
func signsIn(endpoint azcore.TokenCredential) func(ctx context.Context) error {
	credential := &identityCredential{TokenCredential: endpoint, clientID: "id"}
	sdk := runtime.NewBearerTokenPolicy(credential, []string{"scope"}, nil)
	pipeline := runtime.NewPipeline("test", "1", runtime.PipelineOptions{PerRetry: []policy.Policy{sdk}}, &policy.ClientOptions{
		PerCallPolicies: []policy.Policy{credential},
		Transport: answer(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: http.NoBody}, nil
		}),
	})
	return func(ctx context.Context) error {
		req, err := runtime.NewRequest(ctx, http.MethodGet, "https://acct.blob.core.windows.net/c/b")
		if err != nil {
			return err
		}
		_, err = pipeline.Do(req)
		return err
	}
}

// TestSignInFailsForAll: of many calls that need a token each learns that there is
// none when the first does, and not after a time-out of its own.
func TestSignInFailsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := &silent{}
		call := signsIn(endpoint)
		begun := time.Now()
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() {
				if err := call(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call = %v, want that there was no answer in time", err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(begun); took != signInTimeout || endpoint.asked != 1 {
			t.Errorf("1,000 calls learned of it after %s and %d questions, want %s and 1", took, endpoint.asked, signInTimeout)
		}
		endpoint.answers = true
		time.Sleep(signInRest)
		if err := call(t.Context()); err != nil {
			t.Errorf("call afterwards = %v, want none", err)
		}
	})
}

// TestSignInIsNotWaitedForTooLong: a call with little time, as in a drain, does not wait
// for the sign-in of a call that has more.
func TestSignInIsNotWaitedForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := signsIn(&silent{})
		first := make(chan error)
		go func() { first <- call(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 2*time.Second {
			t.Errorf("call with 2s = %v after %s, want that its time is over", err, time.Since(begun))
		}
		if err := <-first; err == nil {
			t.Error("first call = <nil>, want an error")
		}
	})
}

// TestNotSignedIn: --account without any sign-in says how to sign in, at once and
// in one line.
func TestNotSignedIn(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no az, no azd
	account, err := Connect(AccountConfig{Account: "acct", Transport: answer(func(r *http.Request) (*http.Response, error) {
		t.Errorf("call to %s, want none without a token", r.URL)
		return nil, errors.New("no network")
	})})
	if err != nil {
		t.Fatal(err)
	}
	_, err = account.Queue("jobs").GetProperties(t.Context(), nil)
	if err == nil {
		t.Fatal("GetProperties without a sign-in = nil")
	}
	text := Explain(err)
	for _, want := range []string{"not signed in to Azure: run az login or azd auth login", "AZURE_CLIENT_ID",
		"AZURE_STORAGE_CONNECTION_STRING"} {
		if !strings.Contains(text, want) || strings.Contains(text, "\n") {
			t.Errorf("Explain = %q, want one line with %q", text, want)
		}
	}
}
