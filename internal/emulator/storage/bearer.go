package storage

import (
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/token"
)

const bearerScheme = "Bearer"

// minBearerVersion is the oldest protocol version that knows bearer tokens
// ("Authorize with Microsoft Entra ID" in the REST documentation). Versions are
// dates, and compare as text.
const minBearerVersion = "2017-11-09"

// storageResource is the audience that is good for any account.
const storageResource = "https://storage.azure.com"

// bearer verifies "Bearer <token>": an issuer's token for Azure Storage, or
// for this service of this account.
//
// Azure answers 401 InvalidAuthenticationInfo with a challenge to a token of a
// wrong audience, as an issue report shows (Azure/AzureStor#119); that it does
// the same for other tokens which it cannot accept is taken from that reply's
// code. A token over plain http is 403 AuthenticationFailed
// (azure-sdk-for-net#8810), and so is one under an old protocol version.
type bearer struct {
	account string
	issuer  *token.Issuer
}

func (b bearer) verify(r *request, credentials string) error {
	if !r.secure() {
		return errNotAuthenticated.because("a bearer token must not be sent over http")
	}
	if version := r.Header.Get(headerVersion); version < minBearerVersion {
		return errNotAuthenticated.because("version %q does not know bearer tokens; %s is the first that does", version, minBearerVersion)
	}
	claims, err := b.issuer.Verify(credentials, time.Now())
	if err != nil {
		return b.challenge(errBadToken.because("%v", err))
	}
	if !b.accepts(claims.Audience, r.service) {
		return b.challenge(errBadToken.because("the audience is %q", claims.Audience))
	}
	r.principal = claims.ObjectID
	return nil
}

// accepts reports whether an audience is Azure Storage as a whole or the
// service of this account, with or without a slash at the end.
func (b bearer) accepts(audience string, service Service) bool {
	audience = strings.TrimSuffix(audience, "/")
	return audience == storageResource || audience == fmt.Sprintf("https://%s.%s.core.windows.net", b.account, service)
}

// challenge adds the header that tells a client where to get a token and for
// what. Azure writes the values without quotes.
func (b bearer) challenge(e *Error) *Error {
	return e.withHeader("WWW-Authenticate", fmt.Sprintf("Bearer authorization_uri=https://login.microsoftonline.com/%s/oauth2/authorize resource_id=%s",
		b.issuer.Tenant(), storageResource))
}
