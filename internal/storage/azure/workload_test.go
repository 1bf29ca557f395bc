package azure_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// entra is Microsoft Entra for one workload identity: it takes the token of Kubernetes in place of
// a secret (RFC 7523, section 2.2), and issues tokens for storage.
type entra struct {
	client, object string
	tokens         *token.Issuer

	mu         sync.Mutex
	kubernetes string // the token that it takes
	issued     int
}

const entraHost = "https://login.microsoftonline.com"

// answer answers one request.
func (e *entra) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		tenant := entraHost + "/" + strings.Split(r.URL.Path, "/")[1]
		fmt.Fprintf(w, `{"issuer":"%s/v2.0","authorization_endpoint":"%[1]s/oauth2/v2.0/authorize",`+
			`"token_endpoint":"%[1]s/oauth2/v2.0/token"}`, tenant)
	case strings.HasPrefix(r.URL.Path, "/common/discovery/instance"):
		fmt.Fprintf(w, `{"tenant_discovery_endpoint":"%s/tenant/v2.0/.well-known/openid-configuration","metadata":[{"preferred_network":`+
			`"login.microsoftonline.com","preferred_cache":"login.windows.net","aliases":["login.microsoftonline.com"]}]}`, entraHost)
	default:
		e.token(w, r)
	}
}

func (e *entra) token(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := r.ParseForm(); err != nil || r.PostForm.Get("client_id") != e.client || r.PostForm.Get("client_assertion") != e.kubernetes ||
		r.PostForm.Get("scope") == "" || r.PostForm.Get("client_secret") != "" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"invalid_client","error_description":"AADSTS700213: No matching federated identity record found"}`)
		return
	}
	e.issued++
	now := time.Now()
	access := e.tokens.Issue(token.Claims{
		Audience: "https://storage.azure.com", ClientID: e.client, ObjectID: e.object,
		NotBefore: now.Add(-time.Minute), Expires: now.Add(time.Hour),
	})
	fmt.Fprintf(w, `{"token_type":"Bearer","expires_in":3600,"access_token":%q}`, access)
}

// byHost sends calls of a sign-in to Entra and all others to the storage account.
type byHost struct {
	entra   *entra
	account *storage.Server
}

// Do implements policy.Transporter.
func (b byHost) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != entraHost {
		return b.account.Transport().Do(r)
	}
	w := httptest.NewRecorder()
	b.entra.answer(w, r)
	response := w.Result()
	response.Request = r
	return response, nil
}

// TestWorkloadIdentity: with the file of a pod's token the account is used as the workload
// identity. A token that Entra does not take is an error that names the identity and not the token.
func TestWorkloadIdentity(t *testing.T) {
	issuer := token.NewIssuer()
	c := newCloudOf(t, issuer, nil)
	e := &entra{client: c.client, object: c.object, tokens: issuer, kubernetes: "the pod's token"}
	file := filepath.Join(t.TempDir(), "token")
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", file)
	t.Setenv("AZURE_TENANT_ID", uuid.NewString())
	connect := func(podToken string) *azure.Account {
		if err := os.WriteFile(file, []byte(podToken), 0o600); err != nil {
			t.Fatal(err)
		}
		at := c.storage.Endpoints()
		account, err := azure.Connect(azure.AccountConfig{
			Account: "account", ClientID: e.client, BlobEndpoint: at.Blob, QueueEndpoint: at.Queue, Transport: byHost{e, c.storage},
		})
		if err != nil {
			t.Fatal(err)
		}
		return account
	}
	err := use(t.Context(), connect("another token"))
	if err == nil || !strings.Contains(azure.Explain(err), "sign in as the identity "+e.client) ||
		strings.Contains(err.Error(), "another token") {
		t.Errorf("use with a token that is not taken = %v", err)
	}
	if err := use(t.Context(), connect("the pod's token")); err != nil {
		t.Fatal(err)
	}
	c.check(t)
	if e.issued != 1 {
		t.Errorf("tokens issued = %d, want 1 for four calls", e.issued)
	}

	t.Setenv("AZURE_TENANT_ID", "")
	_, err = azure.Connect(azure.AccountConfig{Account: "account", ClientID: e.client})
	if err == nil || !strings.Contains(err.Error(), "tenant") {
		t.Errorf("Connect without a tenant = %v, want an error that names it", err)
	}
}
