package arm

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// audience is the audience of tokens for this resource manager. Names below localhost
// lead to this machine (RFC 6761), should a client ever follow one.
const audience = "https://management.localhost/"

// audiences are the allowed audiences of a token: ours, and Azure's, which a managed
// identity's token is asked for.
var audiences = []string{audience, "https://management.azure.com/", "https://management.core.windows.net/"}

// How long a token is good, and how far back its beginning lies for a service
// whose clock is slow.
const (
	tokenLife    = time.Hour
	tokenBackset = 5 * time.Minute
)

// base is this server as the client of a request sees it.
func base(r *http.Request) string { return "https://" + r.Host }

// endpoints gives a client the facts that it needs about this cloud, in the forms of
// api-version 2015-01-01, which older releases of the Azure CLI read (2.45), and of
// 2022-09-01, which newer ones read (2.74).
func (*Server) endpoints(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"galleryEndpoint": "https://gallery.localhost/",
		"graphEndpoint":   "https://graph.localhost/",
		"portalEndpoint":  "https://portal.localhost/",
		"authentication": map[string]any{
			// The last segment makes it AD FS, whose clients look up no tenant.
			"loginEndpoint": base(r) + "/adfs",
			"audiences":     []string{audience},
		},

		"name":            "lab",
		"resourceManager": base(r),
		"gallery":         "https://gallery.localhost/",
		"graphAudience":   "https://graph.localhost/",
		"portal":          "https://portal.localhost/",
		"suffixes":        map[string]any{"storage": "storage.localhost", "sqlServerHostname": "sql.localhost"},
	})
}

// openID is the discovery document of the authority (OpenID Connect Discovery
// 1.0, section 3). Of the endpoints in it there is only the one for tokens.
func (*Server) openID(w http.ResponseWriter, r *http.Request) {
	authority := base(r) + "/adfs"
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                 authority,
		"authorization_endpoint": authority + "/oauth2/authorize",
		"token_endpoint":         authority + "/oauth2/token",
		"jwks_uri":               authority + "/discovery/keys",
		"grant_types_supported":  []string{"client_credentials"},
	})
}

// signIn gives an application a token for this resource manager (RFC 6749,
// section 4.4). Any secret is good, but there must be one: a client that sends
// none is not configured as it would have to be on Azure.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		refuseSignIn(w, "invalid_request", "the body is not a form")
		return
	}
	client, wanted := r.PostForm.Get("client_id"), wantedAudience(r)
	switch {
	case r.PostForm.Get("grant_type") != "client_credentials":
		refuseSignIn(w, "unsupported_grant_type", "only applications sign in here: az login --service-principal")
	case uuid.Validate(client) != nil:
		refuseSignIn(w, "invalid_client", "client_id is not a GUID")
	case r.PostForm.Get("client_secret") == "":
		refuseSignIn(w, "invalid_client", "client_secret is missing; any text will do")
	case !slices.Contains(audiences, wanted):
		refuseSignIn(w, "invalid_scope", "tokens are only for "+audience)
	default:
		now := time.Now()
		claims := token.Claims{
			Audience: wanted, ClientID: client, ObjectID: client,
			NotBefore: now.Add(-tokenBackset), Expires: now.Add(tokenLife),
		}
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, map[string]any{
			"token_type": "Bearer", "expires_in": int(tokenLife.Seconds()), "access_token": s.tokens.Issue(claims),
		})
	}
}

// wantedAudience is the resource that a token is asked for: in the parameter of
// that name, or as the scope resource/.default.
func wantedAudience(r *http.Request) string {
	wanted := r.PostForm.Get("resource")
	for scope := range strings.FieldsSeq(r.PostForm.Get("scope")) {
		if resource, ok := strings.CutSuffix(scope, "/.default"); ok {
			wanted = resource
		}
	}
	return strings.TrimRight(wanted, "/") + "/"
}

func refuseSignIn(w http.ResponseWriter, code, why string) {
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": why})
}

// checkToken returns nil if the request has a token for this resource manager.
func (s *Server) checkToken(r *http.Request) *refusal {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return refuse(http.StatusUnauthorized, "AuthenticationFailed", "the call has no bearer token: sign in first")
	}
	claims, err := s.tokens.Verify(text, time.Now())
	if err != nil {
		return refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", "%v: sign in again", err)
	}
	if got := strings.TrimRight(claims.Audience, "/") + "/"; !slices.Contains(audiences, got) {
		return refuse(http.StatusUnauthorized, "InvalidAuthenticationTokenAudience", "the token is for %s, not for %s", claims.Audience, audience)
	}
	return nil
}
