package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Faults of a token.
var (
	ErrMalformed   = errors.New("token is malformed")
	ErrSignature   = errors.New("token is not signed by this issuer")
	ErrNotYetValid = errors.New("token is not valid yet")
	ErrExpired     = errors.New("token has expired")
)

// Claims describe the identity that a token is for.
type Claims struct {
	// Audience is the resource that the token is for, as it was asked for.
	Audience string
	// ClientID and ObjectID are GUIDs: the identity's application and its
	// service principal, which roles are given to.
	ClientID, ObjectID string
	// ResourceID is the Azure resource of the identity, if there is one.
	ResourceID string
	// NotBefore and Expires bound the token's life, in whole seconds.
	NotBefore, Expires time.Time
}

// Issuer signs tokens of one tenant. It is safe for concurrent use.
type Issuer struct {
	tenant string
	secret []byte
}

// NewIssuer returns the issuer of a new tenant, with a secret of its own.
func NewIssuer() *Issuer {
	return &Issuer{tenant: uuid.NewString(), secret: []byte(rand.Text())}
}

// Tenant is the GUID of the issuer's tenant.
func (i *Issuer) Tenant() string { return i.tenant }

// header is the first part of every token.
var header = encode([]byte(`{"typ":"JWT","alg":"HS256"}`))

// claimsJSON are a token's claims as they are written. Times are in seconds
// since 1970.
type claimsJSON struct {
	Audience   string `json:"aud"`
	Issuer     string `json:"iss"`
	IssuedAt   int64  `json:"iat"`
	NotBefore  int64  `json:"nbf"`
	Expires    int64  `json:"exp"`
	ClientID   string `json:"appid"`
	ObjectID   string `json:"oid"`
	Subject    string `json:"sub"`
	Tenant     string `json:"tid"`
	Kind       string `json:"idtyp"`
	Version    string `json:"ver"`
	ResourceID string `json:"xms_mirid,omitempty"`
}

// Issue signs a token.
func (i *Issuer) Issue(c Claims) string {
	body, err := json.Marshal(claimsJSON{
		Audience: c.Audience, Issuer: "https://sts.windows.net/" + i.tenant + "/",
		IssuedAt: c.NotBefore.Unix(), NotBefore: c.NotBefore.Unix(), Expires: c.Expires.Unix(),
		ClientID: c.ClientID, ObjectID: c.ObjectID, Subject: c.ObjectID, Tenant: i.tenant,
		Kind: "app", Version: "1.0", ResourceID: c.ResourceID,
	})
	if err != nil {
		panic(fmt.Sprintf("token: encode claims: %v", err)) // strings and numbers only
	}
	signed := header + "." + encode(body)
	return signed + "." + encode(i.sign(signed))
}

// Verify returns the claims of a token. Its error wraps one of the Err values above; the
// caller judges the audience.
func (i *Issuer) Verify(token string, now time.Time) (Claims, error) {
	signed, signature, found := cutLast(token, ".")
	head, body, two := strings.Cut(signed, ".")
	if !found || !two || strings.Contains(body, ".") {
		return Claims{}, fmt.Errorf("%w: it does not have three parts", ErrMalformed)
	}
	mac, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: signature: %w", ErrMalformed, err)
	}
	// Only the one header is ever signed here: no other algorithm, and none
	// such as "none", needs refusing by name.
	if head != header || !hmac.Equal(mac, i.sign(signed)) {
		return Claims{}, ErrSignature
	}
	return read(body, now)
}

// read decodes claims that are known to be this issuer's.
func read(body string, now time.Time) (Claims, error) {
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	var c claimsJSON
	if err := json.Unmarshal(text, &c); err != nil {
		return Claims{}, fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	claims := Claims{
		Audience: c.Audience, ClientID: c.ClientID, ObjectID: c.ObjectID, ResourceID: c.ResourceID,
		NotBefore: time.Unix(c.NotBefore, 0).UTC(), Expires: time.Unix(c.Expires, 0).UTC(),
	}
	switch {
	case now.Before(claims.NotBefore):
		return Claims{}, fmt.Errorf("%w: it begins at %s", ErrNotYetValid, claims.NotBefore.Format(time.RFC3339))
	case !now.Before(claims.Expires):
		return Claims{}, fmt.Errorf("%w: it ended at %s", ErrExpired, claims.Expires.Format(time.RFC3339))
	}
	return claims, nil
}

func (i *Issuer) sign(text string) []byte {
	mac := hmac.New(sha256.New, i.secret)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(separator):], true
}
