package azure_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/spotworker/spotworker/internal/program/tokenproxy"
)

// TestTokenProxyServesTheSDK: a program that uses an Azure SDK gets its token from
// package tokenproxy with two variables and nothing else.
func TestTokenProxyServesTheSDK(t *testing.T) {
	const resource = "https://storage.azure.com/"
	p, err := tokenproxy.Listen(func(_ context.Context, resource string) (string, time.Time, error) {
		return "token for " + resource, time.Now().Add(time.Hour), nil
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	endpoint, secret, revoke := p.Grant([]string{resource})
	defer revoke()
	t.Setenv("IDENTITY_ENDPOINT", endpoint)
	t.Setenv("IDENTITY_HEADER", secret)
	credential, err := azidentity.NewManagedIdentityCredential(nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{resource + ".default"}})
	if err != nil || !strings.HasPrefix(token.Token, "token for https://storage.azure.com") ||
		(time.Until(token.ExpiresOn)-time.Hour).Abs() > 10*time.Minute {
		t.Errorf("GetToken = %q until %s, %v, want the proxy's token for an hour", token.Token, token.ExpiresOn, err)
	}
}
