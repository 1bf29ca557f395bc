package storage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// maxClockSkew is how far a request's date may be from the service's clock.
const maxClockSkew = 15 * time.Minute

// verifier checks the credentials of one scheme of the Authorization header.
// A refusal is an *Error.
type verifier interface {
	verify(r *protocol.Request, credentials string) error
}

// authenticator holds the verifiers by scheme.
type authenticator struct {
	verifiers map[string]verifier
	anonymous *protocol.Error // the refusal of a request without credentials
}

// newAuthenticator accepts the account's key and, unless issuer is nil, the
// issuer's tokens.
func newAuthenticator(account string, secret []byte, issuer *token.Issuer) authenticator {
	a := authenticator{
		verifiers: map[string]verifier{sharedKeyScheme: sharedKey{account: account, secret: secret}},
		anonymous: protocol.ErrNoAuthentication,
	}
	if issuer != nil {
		b := bearer{account: account, issuer: issuer}
		a.verifiers[bearerScheme] = b
		a.anonymous = b.challenge(protocol.ErrNoAuthentication)
	}
	return a
}

// authenticate refuses a request unless the verifier of its scheme accepts it.
func (a authenticator) authenticate(r *protocol.Request) error {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return a.anonymous
	}
	scheme, credentials, found := strings.Cut(authorization, " ")
	v := a.verifiers[scheme]
	if !found || v == nil {
		return protocol.ErrBadAuthentication.Because("scheme %q is not known", scheme)
	}
	return v.verify(r, credentials)
}

const sharedKeyScheme = "SharedKey"

// sharedKey verifies "SharedKey <account>:<signature>": the base64 of the
// HMAC-SHA256 of the string to sign under the account's key ("Authorize with
// Shared Key" in the REST documentation).
type sharedKey struct {
	account string
	secret  []byte
}

func (k sharedKey) verify(r *protocol.Request, credentials string) error {
	account, signature, found := strings.Cut(credentials, ":")
	if !found {
		return protocol.ErrBadAuthentication.Because("no colon between account and signature")
	}
	if account != k.account {
		return protocol.ErrNotAuthenticated.Because("the account is not %q", account)
	}
	got, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return protocol.ErrNotAuthenticated.Because("the signature is not base64")
	}
	if err := checkDate(r, time.Now()); err != nil {
		return err
	}
	for _, order := range headerOrders {
		if hmac.Equal(got, k.sign(stringToSign(r, k.account, order))) {
			return nil
		}
	}
	return protocol.ErrNotAuthenticated.Because("the signature is not that of the string to sign, which here is %q",
		stringToSign(r, k.account, headerOrders[0]))
}

func (k sharedKey) sign(text string) []byte {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// checkDate refuses a request that carries no date or an old one, so that a
// recorded request cannot be sent again for ever.
func checkDate(r *protocol.Request, now time.Time) error {
	value := r.Header.Get(protocol.HeaderDate)
	if value == "" {
		value = r.Header.Get("Date")
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return protocol.ErrNotAuthenticated.Because("x-ms-date %q is not an RFC 1123 date", value)
	}
	if skew := now.Sub(date).Abs(); skew > maxClockSkew {
		return protocol.ErrNotAuthenticated.Because("x-ms-date is %s from the service's clock, at most %s are allowed", skew, maxClockSkew)
	}
	return nil
}

// headerOrder compares two lower-case header names.
type headerOrder func(a, b string) int

// headerOrders are the orders in which clients canonicalize x-ms- headers.
// Most sort by bytes. The blob SDK sorts as the service collates: hyphens
// count for nothing, and an underscore comes before digits and letters.
var headerOrders = []headerOrder{strings.Compare, collate}

var collation = strings.NewReplacer("-", "", "_", "!")

func collate(a, b string) int {
	if c := strings.Compare(collation.Replace(a), collation.Replace(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// stringToSign is the text that a client signs with the shared key, in the
// form of service versions from 2015-02-21 on: method, eleven standard
// headers, the x-ms- headers, the resource.
func stringToSign(r *protocol.Request, account string, order headerOrder) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	date := r.Header.Get("Date")
	if r.Header.Get(protocol.HeaderDate) != "" {
		date = ""
	}
	return strings.Join([]string{
		r.Method,
		r.Header.Get("Content-Encoding"),
		r.Header.Get("Content-Language"),
		length,
		r.Header.Get("Content-MD5"),
		r.Header.Get("Content-Type"),
		date,
		r.Header.Get("If-Modified-Since"),
		r.Header.Get("If-Match"),
		r.Header.Get("If-None-Match"),
		r.Header.Get("If-Unmodified-Since"),
		r.Header.Get("Range"),
		canonicalHeaders(r, order),
		canonicalResource(r, account),
	}, "\n")
}

// canonicalHeaders lists the x-ms- headers, a line each.
func canonicalHeaders(r *protocol.Request, order headerOrder) string {
	var names []string
	values := make(map[string]string)
	for key, v := range r.Header {
		name := strings.ToLower(key)
		if strings.HasPrefix(name, "x-ms-") {
			names = append(names, name)
			values[name] = strings.Join(v, ",")
		}
	}
	slices.SortFunc(names, order)
	lines := make([]string, len(names))
	for i, name := range names {
		lines[i] = name + ":" + values[name]
	}
	return strings.Join(lines, "\n")
}

// canonicalResource is the account, the path as it was sent (which, path
// style, begins with the account a second time), and the query parameters.
func canonicalResource(r *protocol.Request, account string) string {
	var b strings.Builder
	b.WriteString("/" + account + r.URL.EscapedPath())
	names := make([]string, 0, len(r.Query))
	for name := range r.Query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Sorted(slices.Values(r.Query[name]))
		b.WriteString("\n" + strings.ToLower(name) + ":" + strings.Join(values, ","))
	}
	return b.String()
}

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

func (b bearer) verify(r *protocol.Request, credentials string) error {
	if !r.Secure() {
		return protocol.ErrNotAuthenticated.Because("a bearer token must not be sent over http")
	}
	if version := r.Header.Get(protocol.HeaderVersion); version < minBearerVersion {
		return protocol.ErrNotAuthenticated.Because("version %q does not know bearer tokens; %s is the first that does", version,
			minBearerVersion)
	}
	claims, err := b.issuer.Verify(credentials, time.Now())
	if err != nil {
		return b.challenge(protocol.ErrBadToken.Because("%v", err))
	}
	if !b.accepts(claims.Audience, r.Service) {
		return b.challenge(protocol.ErrBadToken.Because("the audience is %q", claims.Audience))
	}
	r.Principal = claims.ObjectID
	return nil
}

// accepts reports whether an audience is Azure Storage as a whole or the
// service of this account, with or without a slash at the end.
func (b bearer) accepts(audience string, service protocol.Service) bool {
	audience = strings.TrimSuffix(audience, "/")
	return audience == storageResource || audience == fmt.Sprintf("https://%s.%s.core.windows.net", b.account, service)
}

// challenge adds the header that tells a client where to get a token and its audience.
// Azure writes the values without quotes.
func (b bearer) challenge(e *protocol.Error) *protocol.Error {
	return e.WithHeader("WWW-Authenticate", fmt.Sprintf("Bearer authorization_uri=https://login.microsoftonline.com/%s/oauth2/authorize "+
		"resource_id=%s",
		b.issuer.Tenant(), storageResource))
}
