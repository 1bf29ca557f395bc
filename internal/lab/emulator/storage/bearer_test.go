package storage

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

func TestBearerTokens(t *testing.T) {
	now := time.Now()
	issuer, other := token.NewIssuer(), token.NewIssuer()
	challenge := "Bearer authorization_uri=https://login.microsoftonline.com/" + issuer.Tenant() +
		"/oauth2/authorize resource_id=https://storage.azure.com"
	claims := func(audience string, begins, ends time.Duration) token.Claims {
		return token.Claims{Audience: audience, ClientID: "client", ObjectID: "object", NotBefore: now.Add(begins), Expires: now.Add(ends)}
	}
	valid := func(audience string) string { return "Bearer " + issuer.Issue(claims(audience, 0, time.Hour)) }
	const storageAudience = "https://storage.azure.com/"

	tests := []struct {
		name          string
		authorization string
		base, version string // default: https, latestVersion
		status        int
		code          string
	}{
		{name: "for any account", authorization: valid("https://storage.azure.com"), status: 404, code: "BlobNotFound"},
		{name: "for this account's blobs", authorization: valid("https://devstoreaccount1.blob.core.windows.net/"), status: 404,
			code: "BlobNotFound"},
		{name: "for this account's queues", authorization: valid("https://devstoreaccount1.queue.core.windows.net"), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "for another account", authorization: valid("https://other.blob.core.windows.net"), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "expired", authorization: "Bearer " + issuer.Issue(claims(storageAudience, -2*time.Hour, -time.Hour)), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "of another issuer", authorization: "Bearer " + other.Issue(claims(storageAudience, 0, time.Hour)), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "anonymous", status: 401, code: "NoAuthenticationInformation"},
		{name: "over http", authorization: valid(storageAudience), base: "http://", status: 403, code: "AuthenticationFailed"},
		{name: "under an old version", authorization: valid(storageAudience), version: "2016-05-31", status: 403, code: "AuthenticationFailed"},
		{name: "of another scheme", authorization: "Basic eDp5", status: 400, code: "InvalidAuthenticationInfo"},
	}
	a := setup(t, Options{Tokens: issuer})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.base == "" {
				tt.base = "https://"
			}
			if tt.version == "" {
				tt.version = protocol.LatestVersion
			}
			r := httptest.NewRequest(http.MethodGet, tt.base+"127.0.0.1"+blobPath, http.NoBody)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			if tt.version != "-" {
				r.Header.Set(protocol.HeaderVersion, tt.version)
			}
			res, _ := send(a.Blob(), r)
			wantReply(t, "GET", res, tt.status, tt.code)
			want := ""
			if tt.status == http.StatusUnauthorized {
				want = challenge
			}
			if got := res.Header.Get("WWW-Authenticate"); got != want {
				t.Errorf("WWW-Authenticate = %q, want %q", got, want)
			}
		})
	}
}

func TestListenTLSRefusesOtherMachines(t *testing.T) {
	if _, err := New(Options{}).ListenTLS(Addresses{Queue: "0.0.0.0:0"}, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Errorf("ListenTLS on 0.0.0.0 succeeded, want a refusal")
	}
}
