package azure

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// signInTimeout is the timeout of one sign-in. It is shorter than the 20 s of a call,
// so that the call's error mentions the sign-in.
const signInTimeout = 19 * time.Second

// signInRest is how long a failed sign-in also fails other calls. In the SDK, calls
// that need a token wait for one another (azcore, sdk/internal/temporal), and each
// of a drain's many writes would sign in again after the previous one failed.
const signInRest = time.Second

// identityCredential signs in with a managed identity. Its errors mention the sign-in:
// otherwise a call that got no token in time would look like a call that storage did not
// answer.
//
// It is also a policy, which runs before the SDK's own: that one lets a call wait for
// another's sign-in regardless of the call's context, which in a drain may take too
// long.
type identityCredential struct {
	azcore.TokenCredential
	clientID string

	mu       sync.Mutex
	underWay chan struct{} // closed at the end of the sign-in that began last; nil after it
	expires  time.Time     // of the last token
	failed   error
	failedAt time.Time
}

// GetToken implements [azcore.TokenCredential].
func (c *identityCredential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	end, err := c.begin()
	if err != nil {
		return azcore.AccessToken{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, signInTimeout)
	defer cancel()
	token, err := c.TokenCredential.GetToken(ctx, options)
	if err != nil {
		err = fmt.Errorf("sign in as the identity %s: %w", c.clientID, err)
	}
	end(token, err)
	return token, err
}

// begin starts a sign-in, or returns the error of a sign-in that has just failed.
func (c *identityCredential) begin() (end func(azcore.AccessToken, error), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil && time.Since(c.failedAt) < signInRest {
		return nil, c.failed
	}
	underWay := make(chan struct{})
	c.underWay = underWay
	return func(token azcore.AccessToken, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(underWay)
		if c.underWay == underWay {
			c.underWay = nil
		}
		if c.failed, c.failedAt = err, time.Now(); err == nil {
			c.expires = token.ExpiresOn
		}
	}, nil
}

// Do implements [policy.Policy].
func (c *identityCredential) Do(req *policy.Request) (*http.Response, error) {
	if underWay := c.awaited(); underWay != nil {
		select {
		case <-underWay:
		case <-req.Raw().Context().Done():
			return nil, fmt.Errorf("sign in as the identity %s: %w", c.clientID, req.Raw().Context().Err())
		}
	}
	return req.Next()
}

// awaited returns the sign-in that every call must wait for, or nil while the last
// token is valid.
func (c *identityCredential) awaited() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.expires) {
		return nil
	}
	return c.underWay
}

// developerSignIn uses the sign-in of a developer's tools. Its errors explain how to
// sign in.
type developerSignIn struct{ azcore.TokenCredential }

// GetToken implements [azcore.TokenCredential].
func (d *developerSignIn) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := d.TokenCredential.GetToken(ctx, options)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("not signed in to Azure: run az login or azd auth login on this machine, or set AZURE_CLIENT_ID to the managed "+
			"identity of this VM, or AZURE_STORAGE_CONNECTION_STRING: %w", err)
	}
	return token, err
}

// unchallenged removes the challenge from the response to a refused token. The SDK
// reads only the audience from it, which is always the same, and writes that while
// other calls read it: a data race (azblob and azqueue, storageAuthorizer). The next
// call signs in again without it.
type unchallenged struct{}

// Do implements [policy.Policy].
func (unchallenged) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		resp.Header.Del("WWW-Authenticate")
	}
	return resp, err
}
