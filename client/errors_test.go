package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
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
			if !ok || !errors.Is(err, ErrDenied) || !errors.As(err, new(*azcore.ResponseError)) || !strings.Contains(err.Error(), want) ||
				denied.Role != "" && denied.Role != want {
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
		_, err = c.Get(t.Context(), "a")
		if !errors.Is(err, ErrNoAccount) || !errors.As(err, new(*net.DNSError)) || !strings.Contains(err.Error(), "contoso.blob.core") {
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
		"nothing":              {Options{}, "Options.Account"},
		"account's URL":        {Options{Account: "https://contoso.blob.core.windows.net"}, "3 to 24"},
		"prefix":               {Options{Account: "contoso", Prefix: "Spot_Worker"}, "allowed are a-z"},
		"broken string":        {Options{ConnectionString: "AccountName=contoso"}, "AccountKey"},
		"plain endpoint":       {Options{Account: "contoso", BlobEndpoint: "http://contoso.example"}, "https only"},
		"queue too short":      {Options{Account: "contoso", Queue: "q"}, "3 to 63"},
		"fewer than no queues": {Options{Account: "contoso", Shards: -1}, "over -1 queues"},
		"too many queues":      {Options{Account: "contoso", Shards: queue.MaxShards + 1}, "Options.Shards to 1 to 16"},
	} {
		if c, err := Open(row.options); c != nil || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Open = %v, want an error with %q", name, err, row.want)
		}
	}
}

// TestOpenAllows: the bounds of the settings are valid.
func TestOpenAllows(t *testing.T) {
	for name, o := range map[string]Options{
		"one queue": {Shards: 1}, "all queues": {Shards: queue.MaxShards},
	} {
		o.Account, o.Credential = "contoso", credential{}
		if _, err := Open(o); err != nil {
			t.Errorf("%s: Open = %v", name, err)
		}
	}
}

// TestNameOfTheProgram: records show which program changed them, on which host.
func TestNameOfTheProgram(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusOpen)
	b.seed(t, "b", StatusOpen)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]*Client{"a": b.again(t), "b": b.Client} {
		if err := c.Cancel(t.Context(), []string{id}, CancelOptions{}, func(r ActionResult) error { return r.Err }); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": filepath.Base(os.Args[0]) + "@" + host, "b": "test@desk"}[id]
		if j, err := b.Get(t.Context(), id); err != nil || j.Owner != want {
			t.Errorf("owner = %q, %v, want %q", j.Owner, err, want)
		}
	}
}

// TestTracerProvider: each put is a span.
func TestTracerProvider(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	b := setupBare(t, Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))})
	if err := b.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), Spec{Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.Ended()); n != 1 {
		t.Errorf("spans = %d, want that of the put", n)
	}
}

// TestReadable: each error of the service and the network is one of this package, or as it was.
func TestReadable(t *testing.T) {
	b := setup(t)
	service := func(status int, code string) error { return &azcore.ResponseError{StatusCode: status, ErrorCode: code} }
	plain := errors.New("plain")
	for name, row := range map[string]struct {
		err  error
		is   []error
		want string
	}{
		"none":          {nil, nil, ""},
		"plain":         {plain, []error{plain}, "plain"},
		"not signed in": {service(401, "InvalidAuthenticationInfo"), []error{ErrDenied}, "401 InvalidAuthenticationInfo"},
		"no right":      {service(403, "AuthorizationPermissionMismatch"), []error{ErrDenied}, "Storage Queue Data Reader"},
		"missing":       {service(404, "ResourceNotFound"), nil, "404 ResourceNotFound"},
		"broken":        {service(500, "InternalError"), nil, "500 InternalError"},
		"names fail":    {&net.DNSError{Err: "server misbehaving", Name: "host.example", IsTemporary: true}, nil, "host.example"},
		"no such name":  {&net.DNSError{Err: "no such host", Name: "host.example", IsNotFound: true}, []error{ErrNoAccount}, "host.example"},
		"no container":  {service(404, "ContainerNotFound"), []error{ErrNoDeployment}, "not the right account"},
		"no queue":      {service(404, "QueueNotFound"), []error{ErrNoDeployment}, "not the right account"},
		"newer":         {fmt.Errorf("read: %w", checkpoint.ErrUnknownFormat), []error{ErrNewerVersion}, "newer version"},
		"damaged":       {&control.DamagedError{Err: plain}, []error{ErrControlDamaged, plain}, "plain"},
		"an unknown kind": {&producer.UnknownKindError{Kind: "digset", Queue: "q", Workers: 1, Kinds: []string{"digest"}}, nil,
			`did you mean "digest"?`},
	} {
		got := b.readable(row.err, toRead)
		if row.err == nil {
			if got != nil {
				t.Errorf("%s: %v", name, got)
			}
			continue
		}
		if got == nil || !strings.Contains(got.Error(), row.want) || strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, got, row.want)
		}
		for _, is := range []error{plain, ErrDenied, ErrNoAccount, ErrNoDeployment, ErrNewerVersion, ErrControlDamaged} {
			if want := slices.Contains(row.is, is); errors.Is(got, is) != want {
				t.Errorf("%s: errors.Is(%v, %v) = %t, want %t", name, got, is, !want, want)
			}
		}
	}
	unknown, ok := errors.AsType[*UnknownKindError](b.readable(&producer.UnknownKindError{Kind: "digset", Queue: "q", Workers: 1,
		Kinds: []string{"digest"}}, toRead))
	if !ok || unknown.Kind != "digset" || unknown.Queue != "q" || unknown.Workers != 1 || unknown.Nearest() != "digest" ||
		len(unknown.Kinds) != 1 {
		t.Errorf("an unknown kind = %+v, want its fields", unknown)
	}
	if role := b.role(&azcore.ResponseError{RawResponse: &http.Response{}}, toRead); role != toRead.queues {
		t.Errorf("role for a response without its request = %s, want %s", role, toRead.queues)
	}
}
