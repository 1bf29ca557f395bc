package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// calls are the methods that read, each as a user would call it.
func (b *rig) calls() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get":    func(ctx context.Context) error { _, err := b.Get(ctx, "a"); return err },
		"Result": func(ctx context.Context) error { _, err := b.Result(ctx, "a"); return err },
		"Wait":   func(ctx context.Context) error { _, err := b.Wait(ctx, "a"); return err },
		"List": func(ctx context.Context) (err error) {
			for _, err = range b.List(ctx, Filter{}) {
			}
			return err
		},
		"Workers": func(ctx context.Context) error { _, err := b.Workers(ctx); return err },
		"Worker":  func(ctx context.Context) error { _, err := b.Worker(ctx, "w"); return err },
		"Queues":  func(ctx context.Context) error { _, err := b.Queues(ctx); return err },
	}
}

// TestNoDeployment: nothing was ever put into the account, or it is the wrong one.
func TestNoDeployment(t *testing.T) {
	b := setupBare(t, Options{Prefix: "elsewhere"})
	for name, call := range b.calls() {
		if name == "Queues" {
			continue // it says which exist
		}
		if err := call(t.Context()); !errors.Is(err, ErrNoDeployment) || errors.Is(err, ErrNotFound) {
			t.Errorf("%s = %v, want ErrNoDeployment", name, err)
		}
	}
}

// TestDenied: the error names the role that the identity lacks.
func TestDenied(t *testing.T) {
	for _, row := range []struct{ code, blobs, queues string }{
		{"AuthorizationPermissionMismatch", "Storage Blob Data Reader", "Storage Queue Data Reader"},
		{"AuthenticationFailed", "clock", "clock"},
		{"AuthorizationFailure", "network rules", "network rules"},
	} {
		b := setup(t)
		b.server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: row.code}}
		})
		for name, call := range b.calls() {
			want := row.blobs
			if name == "Queues" {
				want = row.queues
			}
			err := call(t.Context())
			denied, ok := errors.AsType[*DeniedError](err)
			if !ok || !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), want) || denied.Role != "" && denied.Role != want {
				t.Errorf("%s refused with %s = %v, want an error that names %q", name, row.code, err, want)
			}
		}
	}
}

func TestNoAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the SDK waits between its tries
		c, err := Open(Options{Account: "contoso", Credential: credential{}, Transport: lost{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "a"); !errors.Is(err, ErrNoAccount) || !strings.Contains(err.Error(), "contoso.blob.core.windows.net") {
			t.Errorf("Get = %v, want ErrNoAccount with the host", err)
		}
	})
}

// lost is a network whose names cannot be resolved.
type lost struct{}

func (lost) Do(r *http.Request) (*http.Response, error) {
	return nil, &net.DNSError{Err: "no such host", Name: r.URL.Host, IsNotFound: true}
}

// credential is one of the program's own.
type credential struct{}

func (credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestOpenRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		options Options
		want    string
	}{
		"nothing":         {Options{}, "Options.Account"},
		"account's URL":   {Options{Account: "https://contoso.blob.core.windows.net"}, "3 to 24"},
		"prefix":          {Options{Account: "contoso", Prefix: "Spot_Worker"}, "allowed are a-z"},
		"broken string":   {Options{ConnectionString: "AccountName=contoso"}, "AccountKey"},
		"plain endpoint":  {Options{Account: "contoso", BlobEndpoint: "http://contoso.example"}, "https only"},
		"queue too short": {Options{Account: "contoso", Queue: "q"}, "3 to 63"},
	} {
		if c, err := Open(row.options); c != nil || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Open = %v, want an error with %q", name, err, row.want)
		}
	}
}
