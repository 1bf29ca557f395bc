package storage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/token"
)

// maxClockSkew is how far a request's date may be from the service's clock.
const maxClockSkew = 15 * time.Minute

// verifier checks the credentials of one scheme of the Authorization header.
// A refusal is an *Error.
type verifier interface {
	verify(r *request, credentials string) error
}

// authenticator holds the verifiers by scheme.
type authenticator struct {
	verifiers map[string]verifier
	anonymous *Error // the refusal of a request without credentials
}

// newAuthenticator accepts the account's key and, unless issuer is nil, the
// issuer's tokens.
func newAuthenticator(account string, secret []byte, issuer *token.Issuer) authenticator {
	a := authenticator{
		verifiers: map[string]verifier{sharedKeyScheme: sharedKey{account: account, secret: secret}},
		anonymous: errNoAuthentication,
	}
	if issuer != nil {
		b := bearer{account: account, issuer: issuer}
		a.verifiers[bearerScheme] = b
		a.anonymous = b.challenge(errNoAuthentication)
	}
	return a
}

// authenticate refuses a request unless the verifier of its scheme accepts it.
func (a authenticator) authenticate(r *request) error {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return a.anonymous
	}
	scheme, credentials, found := strings.Cut(authorization, " ")
	v := a.verifiers[scheme]
	if !found || v == nil {
		return errBadAuthentication.because("scheme %q is not known", scheme)
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

func (k sharedKey) verify(r *request, credentials string) error {
	account, signature, found := strings.Cut(credentials, ":")
	if !found {
		return errBadAuthentication.because("no colon between account and signature")
	}
	if account != k.account {
		return errNotAuthenticated.because("the account is not %q", account)
	}
	got, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return errNotAuthenticated.because("the signature is not base64")
	}
	if err := checkDate(r, time.Now()); err != nil {
		return err
	}
	for _, order := range headerOrders {
		if hmac.Equal(got, k.sign(stringToSign(r, k.account, order))) {
			return nil
		}
	}
	return errNotAuthenticated.because("the signature is not that of the string to sign, which here is %q",
		stringToSign(r, k.account, headerOrders[0]))
}

func (k sharedKey) sign(text string) []byte {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// checkDate refuses a request that carries no date or an old one, so that a
// recorded request cannot be sent again for ever.
func checkDate(r *request, now time.Time) error {
	value := r.Header.Get(headerDate)
	if value == "" {
		value = r.Header.Get("Date")
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return errNotAuthenticated.because("x-ms-date %q is not an RFC 1123 date", value)
	}
	if skew := now.Sub(date).Abs(); skew > maxClockSkew {
		return errNotAuthenticated.because("x-ms-date is %s from the service's clock, at most %s are allowed", skew, maxClockSkew)
	}
	return nil
}
