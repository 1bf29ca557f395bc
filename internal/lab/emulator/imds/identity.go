package imds

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// Identity is a managed identity of a VM.
type Identity struct {
	// ClientID is the GUID that a request chooses the identity by, and ObjectID the GUID
	// that roles are given to. Default: new ones.
	ClientID, ObjectID string

	// ResourceID belongs to a user-assigned identity. Empty means that the identity is
	// the VM's own: the system-assigned identity. A VM has at most one.
	ResourceID string
}

func (i Identity) withDefaults() Identity {
	if i.ClientID == "" {
		i.ClientID = uuid.NewString()
	}
	if i.ObjectID == "" {
		i.ObjectID = uuid.NewString()
	}
	return i
}

// Why a request chooses none of a VM's identities.
var (
	errNoIdentity     = errors.New("the VM has no such identity")
	errManyIdentities = errors.New("the VM has several identities: name one by client_id, object_id or msi_res_id")
	errManySelectors  = errors.New("name an identity in one way only")
)

// selectors are the parameters that choose an identity, with the values that they are
// compared to. Both endpoints have them; MSAL writes a resource id as msi_res_id to the
// metadata service and as mi_res_id to App Service.
var selectors = map[string]func(Identity) string{
	"client_id":    func(i Identity) string { return i.ClientID },
	"object_id":    func(i Identity) string { return i.ObjectID },
	"principal_id": func(i Identity) string { return i.ObjectID },
	"msi_res_id":   func(i Identity) string { return i.ResourceID },
	"mi_res_id":    func(i Identity) string { return i.ResourceID },
}

// chooseIdentity returns the identity that a request asks for: the one it
// names, else the VM's own, else the only one.
func chooseIdentity(identities []Identity, query url.Values) (Identity, error) {
	var is func(Identity) bool
	for name, of := range selectors {
		if !query.Has(name) {
			continue
		}
		if is != nil {
			return Identity{}, errManySelectors
		}
		is = func(i Identity) bool { return strings.EqualFold(of(i), query.Get(name)) && of(i) != "" }
	}
	if is == nil {
		return defaultIdentity(identities)
	}
	for _, i := range identities {
		if is(i) {
			return i, nil
		}
	}
	return Identity{}, errNoIdentity
}

func defaultIdentity(identities []Identity) (Identity, error) {
	for _, i := range identities {
		if i.ResourceID == "" {
			return i, nil
		}
	}
	switch len(identities) {
	case 0:
		return Identity{}, errNoIdentity
	case 1:
		return identities[0], nil
	}
	return Identity{}, errManyIdentities
}

// nbfSkew is how far a token's start lies in the past, so that a service whose clock
// is slow accepts it at once. Azure does the same.
const nbfSkew = 5 * time.Minute

// issue returns the claims of a new token for an identity of the VM, signed.
func (g *Guest) issue(i Identity, resource string, now time.Time) (token.Claims, string) {
	resourceID := i.ResourceID
	if resourceID == "" {
		g.server.mu.Lock()
		resourceID = g.vm.ResourceID()
		g.server.mu.Unlock()
	}
	c := token.Claims{
		Audience: resource, ClientID: i.ClientID, ObjectID: i.ObjectID, ResourceID: resourceID,
		NotBefore: now.Add(-nbfSkew).Truncate(time.Second),
		Expires:   now.Add(g.server.options.TokenLife).Truncate(time.Second),
	}
	return c, g.server.options.Tokens.Issue(c)
}

// isResource reports whether text can name a resource: a URI or a GUID.
func isResource(text string) bool {
	if uuid.Validate(text) == nil {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "")
}

// tokenPath belongs to the metadata service's identity endpoint ("How to use managed
// identities on an Azure VM to acquire an access token").
const tokenPath = "/metadata/identity/oauth2/token"

var tokenVersions = []string{"2018-02-01"}

// tokenJSON is the answer of the identity endpoint: every value is a string,
// times are in seconds since 1970.
type tokenJSON struct {
	AccessToken  string `json:"access_token"`
	ClientID     string `json:"client_id"`
	ExpiresIn    string `json:"expires_in"`
	ExpiresOn    string `json:"expires_on"`
	ExtExpiresIn string `json:"ext_expires_in"`
	NotBefore    string `json:"not_before"`
	Resource     string `json:"resource"`
	TokenType    string `json:"token_type"`
}

// tokenErrorJSON is the form of its errors. Clients look at the status; the
// codes are the documented ones, the descriptions ours.
type tokenErrorJSON struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

func refuseToken(code, description string) reply {
	r := jsonReply(http.StatusBadRequest, tokenErrorJSON{Error: code, Description: description})
	r.problem = description
	return r
}

// token answers the identity endpoint of the metadata service.
func (g *Guest) token(c call) reply {
	switch {
	case c.Method != http.MethodGet:
		return *methodNotAllowed(http.MethodGet)
	case !c.hasMetadataHeader():
		return refuseToken("bad_request_102", "the header Metadata: true is missing")
	}
	if bad := c.checkOrigin(); bad != nil {
		return *bad
	}
	if bad := c.checkVersion(tokenVersions); bad != nil {
		return *bad
	}
	resource := c.query.Get("resource")
	switch {
	case resource == "":
		return refuseToken("invalid_request", "the parameter resource is missing")
	case !isResource(resource):
		return refuseToken("invalid_resource", "the resource is neither a URI nor a GUID")
	}
	identity, err := chooseIdentity(g.identities(), c.query)
	if err != nil {
		return refuseToken("invalid_request", err.Error())
	}
	now := time.Now()
	claims, signed := g.issue(identity, resource, now)
	left := seconds(claims.Expires.Unix() - now.Unix())
	return jsonReply(http.StatusOK, tokenJSON{
		AccessToken: signed, ClientID: identity.ClientID,
		ExpiresIn: left, ExtExpiresIn: left,
		ExpiresOn: seconds(claims.Expires.Unix()), NotBefore: seconds(claims.NotBefore.Unix()),
		Resource: resource, TokenType: "Bearer",
	})
}

// identities returns the VM's.
func (g *Guest) identities() []Identity {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	return g.vm.Identities
}

func seconds(n int64) string { return strconv.FormatInt(n, 10) }

// appServicePath belongs to the App Service form of the identity endpoint, below the VM's
// base path ("How to use managed identities for App Service").
const appServicePath = "/msi/token"

const appServiceVersion = "2019-08-01"

// appServiceJSON is its answer: like tokenJSON, with fewer fields.
type appServiceJSON struct {
	AccessToken string `json:"access_token"`
	ClientID    string `json:"client_id"`
	ExpiresOn   string `json:"expires_on"`
	Resource    string `json:"resource"`
	TokenType   string `json:"token_type"`
}

// appServiceErrorJSON is the form of its errors. The texts are ours.
type appServiceErrorJSON struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
}

func refuseAppService(status int, message string) reply {
	return jsonReply(status, appServiceErrorJSON{StatusCode: status, Message: message})
}

// IdentityEnvironment returns the environment variables that make the Azure SDKs
// request tokens from this VM's App Service endpoint instead of the metadata
// service's fixed address. A real VM has no such endpoint; it is the only way to make
// unmodified SDKs use a local one. The base is the
// address under which the VM is served, such as http://127.0.0.1:8080/vms/web_0.
func (g *Guest) IdentityEnvironment(base string) []string {
	return []string{"IDENTITY_ENDPOINT=" + base + appServicePath, "IDENTITY_HEADER=" + g.secret}
}

// appServiceToken answers the App Service form of the identity endpoint. The
// header proves that the caller was given the environment. Which status a wrong
// one has on Azure is not documented; any but 200 is a failure to clients.
func (g *Guest) appServiceToken(c call) reply {
	resource := c.query.Get("resource")
	switch {
	case c.Method != http.MethodGet:
		return *methodNotAllowed(http.MethodGet)
	case subtle.ConstantTimeCompare([]byte(c.header.Get("X-IDENTITY-HEADER")), []byte(g.secret)) == 0:
		return refuseAppService(http.StatusUnauthorized, "the header X-IDENTITY-HEADER does not have the value of IDENTITY_HEADER")
	case c.Version != appServiceVersion:
		return refuseAppService(http.StatusBadRequest, "api-version must be "+appServiceVersion)
	case !isResource(resource):
		return refuseAppService(http.StatusBadRequest, "the resource is neither a URI nor a GUID")
	}
	identity, err := chooseIdentity(g.identities(), c.query)
	if err != nil {
		return refuseAppService(http.StatusBadRequest, err.Error())
	}
	claims, signed := g.issue(identity, resource, time.Now())
	return jsonReply(http.StatusOK, appServiceJSON{
		AccessToken: signed, ClientID: identity.ClientID,
		ExpiresOn: seconds(claims.Expires.Unix()), Resource: resource, TokenType: "Bearer",
	})
}
