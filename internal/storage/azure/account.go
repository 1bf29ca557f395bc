package azure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/storage/outage"
)

// AccountConfig says which storage account to use, and how.
type AccountConfig struct {
	// ConnectionString, if set, contains endpoints and key, and takes precedence.
	ConnectionString string

	// Account is the storage account's name.
	Account string

	// Credential, if set, signs in.
	Credential azcore.TokenCredential

	// ClientID, without a Credential, selects an identity: the workload identity of a pod
	// where AZURE_FEDERATED_TOKEN_FILE names the file of its token, otherwise a user-assigned
	// managed identity of the VM. Empty means the developer's own sign-in.
	ClientID string

	// BlobEndpoint and QueueEndpoint replace the public cloud's addresses,
	// https://<account>.blob.core.windows.net and …queue….
	BlobEndpoint, QueueEndpoint string

	// Concurrency is the number of connections to keep open: as many as calls run at
	// once. Default 16.
	Concurrency int

	// Transport replaces the HTTP transport. For tests.
	Transport policy.Transporter

	// Retry replaces the retry options, whose delays the SDK draws from a global
	// random source. For tests that must repeat exactly.
	Retry *policy.RetryOptions

	// OnCall is called after the response of every call to the account, once for each
	// retry. It must be quick. Optional.
	OnCall func(Call)

	// OnEnd is called when a call to the account has ended, retries included, unless its
	// caller cancelled it. It must be quick. Optional.
	OnEnd func(outage.Call)

	// Version names the program in the User-Agent header.
	Version string
}

// Account is a connected storage account.
type Account struct {
	blobs    *service.Client
	queues   *azqueue.ServiceClient
	identity azcore.TokenCredential // nil with a connection string

	blobOptions policy.ClientOptions // of blobs
}

// Connect creates the clients of an account. It makes no call: the first call shows
// whether the account can be reached.
func Connect(c AccountConfig) (*Account, error) {
	if c.ConnectionString != "" {
		return connectByString(c)
	}
	if c.Account == "" {
		return nil, errors.New("no storage account is given")
	}
	blobURL, err := endpoint(c.BlobEndpoint, c.Account, "blob")
	if err != nil {
		return nil, err
	}
	queueURL, err := endpoint(c.QueueEndpoint, c.Account, "queue")
	if err != nil {
		return nil, err
	}
	credential, err := c.credential()
	if err != nil {
		return nil, fmt.Errorf("credentials for storage account %s: %w", c.Account, err)
	}
	options := c.clientOptions(true)
	options.PerRetryPolicies = []policy.Policy{unchallenged{}}
	if first, ok := credential.(policy.Policy); ok {
		options.PerCallPolicies = []policy.Policy{first}
	}
	blobs, err := service.NewClient(blobURL, credential, &service.ClientOptions{ClientOptions: c.watched(options, blobService)})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", blobURL, err)
	}
	queues, err := azqueue.NewServiceClient(queueURL, credential, &azqueue.ClientOptions{ClientOptions: c.watched(options, queueService)})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", queueURL, err)
	}
	return &Account{blobs: blobs, queues: queues, identity: credential, blobOptions: c.watched(options, blobService)}, nil
}

// connectByString connects with a connection string. Its errors never quote the
// string, which contains a key.
func connectByString(c AccountConfig) (*Account, error) {
	c.ConnectionString = plainString(c.ConnectionString)
	options := c.clientOptions(!strings.Contains(strings.ToLower(c.ConnectionString), "http://"))
	blobs, err := azblob.NewClientFromConnectionString(c.ConnectionString,
		&azblob.ClientOptions{ClientOptions: c.watched(options, blobService)})
	if err != nil {
		return nil, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be used: it must name AccountName and AccountKey, and for an emulator " +
			"BlobEndpoint and QueueEndpoint")
	}
	queues, err := azqueue.NewServiceClientFromConnectionString(c.ConnectionString,
		&azqueue.ClientOptions{ClientOptions: c.watched(options, queueService)})
	if err != nil {
		return nil, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be used for queues: it must name AccountName and AccountKey, and for " +
			"an emulator QueueEndpoint")
	}
	for _, address := range []string{blobs.URL(), queues.URL()} {
		if c.Transport != nil {
			break // nothing is sent over a network
		}
		if err := refusePlainHTTP(address, c.ConnectionString); err != nil {
			return nil, err
		}
	}
	return &Account{blobs: blobs.ServiceClient(), queues: queues}, nil
}

// settingNames are the settings of a connection string.
var settingNames = []string{
	"DefaultEndpointsProtocol", "AccountName", "AccountKey", "EndpointSuffix", "BlobEndpoint", "QueueEndpoint", "SharedAccessSignature",
}

// developmentStorage is what the setting UseDevelopmentStorage=true stands for: an emulator on
// this machine, with the key that all have.
const developmentStorage = "DefaultEndpointsProtocol=http;AccountName=" + emulatorAccount + ";AccountKey=" +
	"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"BlobEndpoint=http://127.0.0.1:10000/" + emulatorAccount + ";QueueEndpoint=http://127.0.0.1:10001/" + emulatorAccount

// plainString returns a connection string as the SDK reads it: without quotes, white space and
// empty settings, as files and secrets have them, and with names in the SDK's case.
func plainString(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '"' || r == '\'' || r == '\ufeff' {
			return -1 // no setting has one
		}
		return r
	}, text)
	if strings.EqualFold(strings.Trim(text, ";"), "UseDevelopmentStorage=true") {
		return developmentStorage
	}
	var settings []string
	for setting := range strings.SplitSeq(text, ";") {
		name, value, isSetting := strings.Cut(setting, "=")
		if i := slices.IndexFunc(settingNames, func(known string) bool { return strings.EqualFold(known, name) }); isSetting && i >= 0 {
			setting = settingNames[i] + "=" + value
		}
		if setting != "" {
			settings = append(settings, setting)
		}
	}
	return strings.Join(settings, ";")
}

// Setting returns a setting of a connection string, such as AccountName; empty without it.
func Setting(connectionString, name string) string {
	for setting := range strings.SplitSeq(plainString(connectionString), ";") {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			return value
		}
	}
	return ""
}

// emulatorAccount is the account of Azurite, whose key is public.
const emulatorAccount = "devstoreaccount1"

// refusePlainHTTP returns an error if data and signatures would be sent over a
// network unencrypted. Loopback and the emulator's account, which has no secret, are
// allowed.
func refusePlainHTTP(address, connectionString string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || isLoopback(u.Hostname()) ||
		strings.Contains(strings.ToLower(connectionString), "accountname="+emulatorAccount) {
		return nil //nolint:nilerr // the SDK made the address
	}
	return fmt.Errorf("AZURE_STORAGE_CONNECTION_STRING names http://%s: jobs, their data and signatures would cross the network unencrypted. "+
		"Use https; plain http is for this machine (localhost) and for an emulator's account %s", u.Host, emulatorAccount)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// HasIdentity reports whether the account is used with an identity, and not with a
// connection string.
func (a *Account) HasIdentity() bool { return a.identity != nil }

// Token returns an access token of the identity for a resource such as
// https://storage.azure.com/, and when it expires. The credential caches it.
func (a *Account) Token(ctx context.Context, resource string) (string, time.Time, error) {
	if a.identity == nil {
		return "", time.Time{}, errors.New("no identity: the account is reached with a connection string")
	}
	scope := strings.TrimSuffix(resource, "/") + "/.default"
	token, err := a.identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	return token.Token, token.ExpiresOn, err
}

// Queue returns the client of a queue.
func (a *Account) Queue(name string) *azqueue.QueueClient { return a.queues.NewQueueClient(name) }

// Container returns the client of a container.
func (a *Account) Container(name string) *container.Client { return a.blobs.NewContainerClient(name) }

// Endpoint returns the URL of the account's blobs.
func (a *Account) Endpoint() string { return strings.TrimSuffix(a.blobs.URL(), "/") }

// Containers returns the clients of the containers of another account, which is reached
// with the same identity.
func (a *Account) Containers(endpoint string) (func(name string) *container.Client, error) {
	if a.identity == nil {
		return nil, errors.New("other accounts need an identity, and this worker has a connection string, which is for one account")
	}
	blobs, err := service.NewClient(endpoint+"/", a.identity, &service.ClientOptions{ClientOptions: a.blobOptions})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return blobs.NewContainerClient, nil
}

// Host returns the host of the account's blob endpoint, for messages to people.
func (a *Account) Host() string {
	u, err := url.Parse(a.blobs.URL())
	if err != nil {
		return "the storage account"
	}
	return u.Host
}

func (c AccountConfig) credential() (azcore.TokenCredential, error) {
	switch {
	case c.Credential != nil:
		return c.Credential, nil
	case c.ClientID == "":
		return developerCredential()
	}
	identity, err := c.identity()
	return &identityCredential{TokenCredential: identity, clientID: c.ClientID}, err
}

// tokenFileVariable names the file of a workload identity's token: Kubernetes renews it, and
// Microsoft Entra takes it in place of a secret. The webhook of workload identities sets it in
// each pod, with AZURE_TENANT_ID and AZURE_AUTHORITY_HOST, which azidentity reads.
const tokenFileVariable = "AZURE_FEDERATED_TOKEN_FILE"

// identity returns the credential of a workload identity or of a managed identity.
func (c AccountConfig) identity() (azcore.TokenCredential, error) {
	options := policy.ClientOptions{Transport: c.Transport}
	if file := os.Getenv(tokenFileVariable); file != "" {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, ClientID: c.ClientID, TokenFilePath: file,
		})
	}
	if options.Transport == nil {
		options.Transport = &http.Client{Transport: newIdentityTransport(), CheckRedirect: refuseRedirects}
	}
	return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
		ClientOptions: options, ID: azidentity.ClientID(c.ClientID),
	})
}

// SignIn returns the credential of the identity clientID, or of the developer's own sign-in, as
// [AccountConfig] does. It sends nothing. For services other than storage.
func SignIn(clientID string) (azcore.TokenCredential, error) {
	return AccountConfig{ClientID: clientID}.credential()
}

// developerCredential uses the sign-ins of a developer's tools. It never contacts the
// metadata endpoint.
func developerCredential() (azcore.TokenCredential, error) {
	cli, err := azidentity.NewAzureCLICredential(nil)
	if err != nil {
		return nil, err
	}
	developer, err := azidentity.NewAzureDeveloperCLICredential(nil)
	if err != nil {
		return nil, err
	}
	chain, err := azidentity.NewChainedTokenCredential([]azcore.TokenCredential{cli, developer}, nil)
	return &developerSignIn{chain}, err
}

func endpoint(given, account, kind string) (string, error) {
	if given == "" {
		if !validAccount(account) {
			return "", fmt.Errorf("storage account %q: a name has 3 to 24 of a-z and 0-9, without the address behind it", account)
		}
		return "https://" + account + "." + kind + ".core.windows.net/", nil
	}
	u, err := url.Parse(given)
	if err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return "", fmt.Errorf("--%s-endpoint must have no user, query or fragment; it may hold a secret and is not repeated here", kind)
	}
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", fmt.Errorf("--%s-endpoint %q is not a URL such as https://account.%s.core.windows.net", kind, given, kind)
	}
	if u.Scheme != "https" {
		return "", fmt.Errorf("--%s-endpoint %q: tokens are sent over https only", kind, given)
	}
	return strings.TrimSuffix(given, "/") + "/", nil
}
