package imds

import (
	"net/http"
	"strconv"
	"time"
)

// tokenPath is that of the metadata service's identity endpoint ("How to use
// managed identities on an Azure VM to acquire an access token").
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
