package arm

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// inProcess sends an SDK's requests to a handler, without sockets.
type inProcess struct{ http.Handler }

// Do implements [policy.Transporter].
func (p inProcess) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// signedIn is the credential of a user who has a token. azidentity's credentials are for
// internal/storage/azure alone; signing in as clients do is for the Azure CLI, in the
// integration tests.
type signedIn struct{ token string }

// GetToken implements [azcore.TokenCredential].
func (s signedIn) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if want := []string{audience + "/.default"}; !slices.Equal(o.Scopes, want) {
		return azcore.AccessToken{}, fmt.Errorf("scopes %q, want %q", o.Scopes, want)
	}
	return azcore.AccessToken{Token: s.token, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestSDK calls through azcore's pipeline for ARM, with its own ideas of a resource
// manager's answers.
func TestSDK(t *testing.T) {
	b := setup(t)
	options := policy.ClientOptions{
		Transport: inProcess{b.Handler()},
		Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: "https://localhost:8443", Audience: audience},
		}},
	}
	pipeline, err := runtime.NewPipeline("test", "v1.0.0", signedIn{b.token}, sdk.PipelineOptions{},
		&arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		uniform + "/simulateEviction" + version: "",
		regular + "/simulateEviction" + version: "OperationNotAllowed",
	} {
		request, err := sdk.NewRequest(t.Context(), http.MethodPost, "https://localhost:8443"+path)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := pipeline.Do(request)
		if err != nil {
			t.Fatalf("POST %s: %v", path, err)
		}
		if got := codeOf(reply); got != want {
			t.Errorf("POST %s fails with code %q, want %q", path, got, want)
		}
	}
}

// codeOf returns the code of an answer as the SDK reads it, empty for success.
func codeOf(reply *http.Response) string {
	defer reply.Body.Close()
	if sdk.HasStatusCode(reply, http.StatusNoContent) {
		return ""
	}
	if e, ok := sdk.NewResponseError(reply).(*azcore.ResponseError); ok { //nolint:errorlint // the SDK promises that type
		return e.ErrorCode
	}
	return "?"
}

func TestSignInRefuses(t *testing.T) {
	for want, change := range map[string]map[string]string{
		"unsupported_grant_type": {"grant_type": "password"},
		"invalid_client":         {"client_id": "me"},
		"invalid_scope":          {"scope": "https://storage.azure.com/.default"},
	} {
		b := setup(t)
		if got := b.signIn(b.form(change)); got["status"] != http.StatusBadRequest || got["error"] != want || got["access_token"] != nil {
			t.Errorf("sign-in with %v = %v, want 400 %s", change, got, want)
		}
	}
	b := setup(t)
	if got := b.signIn(b.form(map[string]string{"client_secret": ""})); got["status"] != http.StatusBadRequest ||
		got["error"] != "invalid_client" {
		t.Errorf("sign-in without a secret = %v, want 400 invalid_client", got)
	}
}

// TestAudiences: a token is for the requested audience, in either form.
func TestAudiences(t *testing.T) {
	b := setup(t)
	for _, change := range []map[string]string{
		{"scope": "https://management.azure.com//.default"},
		{"scope": "https://management.azure.com/.default offline_access"},
		{"scope": "", "resource": "https://management.azure.com"},
		{"scope": "", "resource": "https://management.core.windows.net/"},
	} {
		answer := b.signIn(b.form(change))
		text, _ := answer["access_token"].(string)
		claims, err := b.tokens.Verify(text, time.Now())
		if err != nil || !slices.Contains(audiences[1:], claims.Audience) {
			t.Errorf("token for %v = %v (%v), want one for Azure's ARM", change, answer, err)
		}
		b.token = text
		if got := b.call(http.MethodGet, "/subscriptions?api-version=2016-06-01")["status"]; got != http.StatusOK {
			t.Errorf("call with a token for %v = %v, want 200", change, got)
		}
	}
}

// TestTokens calls with tokens that are not good, or not any more.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		claims := token.Claims{Audience: "https://storage.azure.com/", NotBefore: time.Now(), Expires: time.Now().Add(time.Hour)}
		storage := b.tokens.Issue(claims)
		claims.Audience = audience
		foreign := token.NewIssuer().Issue(claims)
		good := b.token
		for text, want := range map[string]string{
			"x": "InvalidAuthenticationToken", storage: "InvalidAuthenticationTokenAudience", foreign: "InvalidAuthenticationToken",
		} {
			b.token = text
			wantError(t, b.call(http.MethodGet, "/subscriptions"), http.StatusUnauthorized, want, "")
		}
		b.token = good
		time.Sleep(tokenLife)
		wantError(t, b.call(http.MethodGet, "/subscriptions"), http.StatusUnauthorized, "InvalidAuthenticationToken", "ended")

		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, single+"/simulateEviction"+version, nil))
		if got := w.Header().Get("WWW-Authenticate"); w.Code != http.StatusUnauthorized || got == "" {
			t.Errorf("call without a token = %d with challenge %q, want 401 with one", w.Code, got)
		}
	})
}

// TestSubscriptions lists each subscription once, however it is written.
func TestSubscriptions(t *testing.T) {
	b := setup(t)
	other := "0000000a-0000-0000-0000-000000000000"
	b.metadata.AddVM(imds.VM{Name: "x", Subscription: other})
	b.metadata.AddVM(imds.VM{Name: "y", Subscription: "0000000A-0000-0000-0000-000000000000"})
	answer := b.call(http.MethodGet, "/subscriptions/?api-version=2016-06-01")
	list, _ := answer["value"].([]any)
	var ids []any
	for _, s := range list {
		entry := s.(map[string]any)
		ids = append(ids, entry["subscriptionId"])
		if entry["state"] != "Enabled" || entry["tenantId"] != b.tokens.Tenant() {
			t.Errorf("subscription = %v, want it enabled, of tenant %s", entry, b.tokens.Tenant())
		}
	}
	if want := []any{uuid.Nil.String(), other}; !slices.Equal(ids, want) {
		t.Errorf("subscriptions = %v, want %v", ids, want)
	}
}

// TestFactsForNewerCLIs: the Azure CLI from 2.74 on, and some before, registers no cloud
// without these facts.
func TestFactsForNewerCLIs(t *testing.T) {
	cloud := setup(t).answer(httptest.NewRequest(http.MethodGet, "https://localhost:99/metadata/endpoints?api-version=2022-09-01", nil))
	suffixes, _ := cloud["suffixes"].(map[string]any)
	for fact, got := range map[string]any{
		"name": cloud["name"], "graphAudience": cloud["graphAudience"], "suffixes.storage": suffixes["storage"],
		"suffixes.sqlServerHostname": suffixes["sqlServerHostname"],
	} {
		if text, _ := got.(string); text == "" {
			t.Errorf("%s = %v, want a text", fact, got)
		}
	}
}

// TestAddressesAreTheClients: the address of the next request is the host that
// it asked.
func TestAddressesAreTheClients(t *testing.T) {
	b := setup(t)
	cloud := b.answer(httptest.NewRequest(http.MethodGet, "https://localhost:99/metadata/endpoints?api-version=2015-01-01", nil))
	authentication, _ := cloud["authentication"].(map[string]any)
	if got := authentication["loginEndpoint"]; got != "https://localhost:99/adfs" {
		t.Errorf("loginEndpoint = %v, want https://localhost:99/adfs", got)
	}
	if got := cloud["resourceManager"]; got != "https://localhost:99" {
		t.Errorf("resourceManager = %v, want https://localhost:99", got)
	}
	discovery := b.answer(httptest.NewRequest(http.MethodGet, "https://localhost:99/adfs/.well-known/openid-configuration", nil))
	if got := discovery["token_endpoint"]; got != "https://localhost:99/adfs/oauth2/token" {
		t.Errorf("token_endpoint = %v, want https://localhost:99/adfs/oauth2/token", got)
	}
}
