package imds

import (
	"crypto/subtle"
	"net/http"
	"time"
)

// appServicePath is that of the App Service form of the identity endpoint,
// below the VM's base path ("How to use managed identities for App Service").
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

// IdentityEnvironment returns the environment variables that make the Azure
// SDKs ask this VM's App Service endpoint for tokens in place of the metadata
// service's fixed address. No VM has that endpoint; it is here because it is
// the way to a local endpoint that unmodified SDKs take. The base is the
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
