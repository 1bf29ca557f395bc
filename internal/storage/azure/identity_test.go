package azure_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/tlsca"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/guard"
	"github.com/spotworker/spotworker/internal/test/need"
)

// childVariable marks the process that runs a test with the environment and
// the transport of a production worker, and childDone is its exit code when all
// went well: it leaves with its connections open, as a worker does, and package
// testing takes 0 in the middle of a test for a mistake.
const (
	childVariable = "SPOTWORKER_TEST_CHILD"
	childDone     = 3
)

// cloud is an emulated account and a VM with one identity, which may use it.
type cloud struct {
	storage  *storage.Server
	metadata *imds.Server
	vm       *imds.Guest
	client   string // the identity's client id
	object   string

	mu      sync.Mutex
	callers map[string]string // principal by operation
}

// newCloud makes one. MSAL keeps tokens of the whole process by client id, so
// each has an id of its own.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	return newCloudOf(t, token.NewIssuer(), nil)
}

// newCloudOf makes one in which storage accepts another issuer's tokens than
// the VM gets, unless accepted is nil.
func newCloudOf(t *testing.T, issued, accepted *token.Issuer) *cloud {
	t.Helper()
	if accepted == nil {
		accepted = issued
	}
	c := &cloud{client: uuid.NewString(), object: uuid.NewString(), callers: map[string]string{}}
	c.storage = storage.New(storage.Options{Account: "account", Tokens: accepted})
	c.storage.OnCall(func(call storage.Call) storage.Fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.callers[call.Operation] = call.Principal
		return storage.Fault{}
	})
	c.metadata = imds.New(imds.Options{Tokens: issued})
	c.vm = c.metadata.AddVM(imds.VM{
		Name:       "web_0",
		Identities: []imds.Identity{{ClientID: c.client, ObjectID: c.object, ResourceID: "/subscriptions/s/identity"}},
	})
	return c
}

// listen serves the account over TLS and the VM's App Service endpoint, and
// returns the account's addresses, the environment and the authority.
func (c *cloud) listen(t *testing.T) (storage.Endpoints, []string, *tlsca.Authority) {
	t.Helper()
	authority, err := tlsca.New()
	if err != nil {
		t.Fatalf("tlsca: %v", err)
	}
	config, err := authority.ServerConfig()
	if err != nil {
		t.Fatalf("ServerConfig: %v", err)
	}
	at, err := c.storage.ListenTLS(storage.Addresses{}, config)
	if err != nil {
		t.Fatalf("ListenTLS: %v", err)
	}
	metadata := httptest.NewServer(c.vm.Handler())
	t.Cleanup(func() {
		metadata.Close()
		if err := c.storage.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return at, c.vm.IdentityEnvironment(guard.Loopback(t, metadata.URL)), authority
}

// connect connects as a worker does, but through a transport that trusts the
// authority and reaches this machine only.
func (c *cloud) connect(t *testing.T, client string) *azure.Account {
	t.Helper()
	at, environment, authority := c.listen(t)
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	transport := guard.Transport()
	transport.TLSClientConfig = authority.ClientConfig()
	t.Cleanup(transport.CloseIdleConnections)
	account, err := azure.Connect(azure.AccountConfig{
		Account: "account", ClientID: client, BlobEndpoint: at.Blob, QueueEndpoint: at.Queue,
		Transport: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	return account
}

// use makes a queue and a container and puts something into each.
func use(ctx context.Context, account *azure.Account) error {
	queue, container := account.Queue("jobs"), account.Container("records")
	if _, err := queue.Create(ctx, nil); err != nil {
		return err
	}
	if _, err := queue.EnqueueMessage(ctx, "text", nil); err != nil {
		return err
	}
	if _, err := container.Create(ctx, nil); err != nil {
		return err
	}
	_, err := container.NewBlockBlobClient("a").UploadBuffer(ctx, []byte("state"), nil)
	return err
}

// check demands that use has left its traces, under the VM's identity.
func (c *cloud) check(t *testing.T) {
	t.Helper()
	if got := c.storage.Messages("jobs"); len(got) != 1 || got[0].Text != "text" {
		t.Errorf("messages = %v, want the one that was put", got)
	}
	if _, body, _ := c.storage.ReadBlob("records", "a"); string(body) != "state" {
		t.Errorf("blob = %q, want %q", body, "state")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for operation, principal := range c.callers {
		if principal != c.object {
			t.Errorf("%s was called by %q, want the identity %q", operation, principal, c.object)
		}
	}
	if len(c.callers) != 4 {
		t.Errorf("operations = %v, want four", c.callers)
	}
}

func TestManagedIdentityOverTLS(t *testing.T) {
	c := newCloud(t)
	if err := use(t.Context(), c.connect(t, c.client)); err != nil {
		t.Fatalf("use: %v", err)
	}
	c.check(t)
	if got := c.vm.Stats().TokenRequests; got != 1 {
		t.Errorf("the identity endpoint was asked %d times, want once for both services", got)
	}
}

// The child has only the means of a worker on a VM: the environment, and the default
// transport, which trusts the certificates of SSL_CERT_FILE.
func TestManagedIdentityWithTheDefaultTransport(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		runChild(t)
		return
	}
	need.On(t, "Go reads SSL_CERT_FILE there", "linux")
	c := newCloud(t)
	at, environment, authority := c.listen(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := authority.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
	child.Env = append(os.Environ(), environment...)
	child.Env = append(child.Env, childVariable+"=1", "SSL_CERT_FILE="+file,
		"AZURE_CLIENT_ID="+c.client, "BLOB="+at.Blob, "QUEUE="+at.Queue)
	if output, err := child.CombinedOutput(); child.ProcessState.ExitCode() != childDone {
		t.Fatalf("child: %v\n%s", err, output)
	}
	c.check(t)
}

func runChild(t *testing.T) {
	// Without these two the SDK would ask the machine's real metadata service.
	guard.Loopback(t, os.Getenv("IDENTITY_ENDPOINT"))
	if os.Getenv("IDENTITY_HEADER") == "" {
		t.Fatal("IDENTITY_HEADER is not set")
	}
	account, err := azure.Connect(azure.AccountConfig{
		Account: "account", ClientID: os.Getenv("AZURE_CLIENT_ID"),
		BlobEndpoint: guard.Loopback(t, os.Getenv("BLOB")), QueueEndpoint: guard.Loopback(t, os.Getenv("QUEUE")),
	})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	if err := use(t.Context(), account); err != nil {
		t.Fatalf("use: %v", err)
	}
	os.Exit(childDone)
}

func TestIdentityThatTheVMDoesNotHave(t *testing.T) {
	c := newCloud(t)
	err := use(t.Context(), c.connect(t, uuid.NewString()))
	if err == nil {
		t.Fatalf("use succeeded, want no token")
	}
	if got := azure.Explain(err); !strings.Contains(got, ": no token: ") || strings.Contains(got, "\n") {
		t.Errorf("Explain = %q, want one line that says there is no token", got)
	}
	if got := c.storage.Counts(); len(got) != 0 {
		t.Errorf("storage was called: %v, want no call without a token", got)
	}
}

func TestTokenThatStorageDoesNotAccept(t *testing.T) {
	c := newCloudOf(t, token.NewIssuer(), token.NewIssuer())
	account := c.connect(t, c.client)
	_, queueErr := account.Queue("jobs").Create(t.Context(), nil)
	_, blobErr := account.Container("records").Create(t.Context(), nil)
	for service, err := range map[string]error{"queue": queueErr, "blob": blobErr} {
		re, ok := errors.AsType[*azcore.ResponseError](err)
		if !ok || re.StatusCode != http.StatusUnauthorized || re.ErrorCode != "InvalidAuthenticationInfo" {
			t.Errorf("%s: %v, want 401 InvalidAuthenticationInfo", service, err)
		}
	}
	counts := c.storage.Counts()
	if counts[storage.OpCreateQueue] > 2 || counts[storage.OpCreateContainer] > 2 {
		t.Errorf("calls = %v, want at most one repetition, for the challenge", counts)
	}
}

// inProcess takes the place of the network: the metadata service's fixed
// address is the VM's side of the emulator, and nothing else exists but the
// storage account.
type inProcess struct{ *cloud }

func (n inProcess) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "169.254.169.254" {
		return n.vm.RoundTripper().RoundTrip(r)
	}
	return n.storage.Transport().Do(r)
}

// onAVM connects as on a VM: the credential finds no other endpoint in the
// environment and asks the metadata service.
func (c *cloud) onAVM(t *testing.T) *azure.Account {
	t.Helper()
	at := c.storage.Endpoints()
	account, err := azure.Connect(azure.AccountConfig{
		Account: "account", ClientID: c.client, BlobEndpoint: at.Blob, QueueEndpoint: at.Queue, Transport: inProcess{c},
	})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	return account
}

// clearEnvironment removes what names another identity endpoint than the
// metadata service.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET", "IMDS_ENDPOINT"} {
		t.Setenv(name, "")
	}
}

// The flow of a production VM, in virtual time: unmodified credentials ask the
// metadata service, whose tokens end after a day.
func TestManagedIdentityOfAVMOverDays(t *testing.T) {
	clearEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		account := c.onAVM(t)
		if err := use(t.Context(), account); err != nil {
			t.Fatalf("use: %v", err)
		}
		c.check(t)
		for range 3 * 24 {
			time.Sleep(time.Hour)
			if _, err := account.Queue("jobs").GetProperties(t.Context(), nil); err != nil {
				t.Fatalf("GetProperties: %v", err)
			}
		}
		got := c.vm.Stats().TokenRequests
		if got < 3 || got > 8 {
			t.Errorf("the metadata service was asked for %d tokens in 3 days, want one or two a day", got)
		}
		t.Logf("%d requests for tokens in 3 days", got)
		if got := c.storage.Counts()[storage.OpGetQueueMetadata]; got != 3*24 {
			t.Errorf("GetQueueMetadata was called %d times, want %d: no token was refused", got, 3*24)
		}
	})
}

// Warm-up lives with a metadata service that throttles, and a call gives up
// with its context however long the credential would take.
func TestTokenRequestsThatAreThrottled(t *testing.T) {
	clearEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		c.metadata.OnRequest(func(r imds.Request) imds.Fault {
			if r.N <= 3 {
				return imds.Fault{Status: http.StatusTooManyRequests}
			}
			return imds.Fault{}
		})
		began, account := time.Now(), c.onAVM(t)
		for err := use(t.Context(), account); err != nil; err = use(t.Context(), account) {
			if time.Since(began) > time.Minute {
				t.Fatalf("use: %v", err)
			}
			time.Sleep(time.Second)
		}
		t.Logf("a token after 3 refusals took %s", time.Since(began))

		c = newCloud(t)
		c.metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusGone} })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began = time.Now()
		if err := use(ctx, c.onAVM(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("use = %v, want %v", err, context.DeadlineExceeded)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the call took %s, want the 10s of its context", took)
		}
	})
}
