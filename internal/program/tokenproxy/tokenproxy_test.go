package tokenproxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const storageResource = "https://storage.azure.com/"

func start(t *testing.T, source Source) *Proxy {
	t.Helper()
	p, err := Listen(source, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func echoSource(_ context.Context, resource string) (string, time.Time, error) {
	return "token for " + resource, time.Now().Add(time.Hour), nil
}

func TestRefuses(t *testing.T) {
	p := start(t, echoSource)
	endpoint, secret, revoke := p.Grant([]string{storageResource, "https://vault.azure.net"})
	_, over, end := p.Grant([]string{storageResource})
	end()
	for _, row := range []struct {
		name, path, secret string
		status             int
		says               string
	}{
		{"allowed", "?resource=https://storage.azure.com/", secret, 200, "access_token"},
		{"allowed, without the slash", "?resource=https://storage.azure.com", secret, 200, "access_token"},
		{"the second one", "?resource=https://vault.azure.net", secret, 200, "access_token"},
		{"another resource", "?resource=https://management.azure.com/", secret, 403, "https://storage.azure.com/, https://vault.azure.net"},
		{"no resource", "", secret, 403, "tokens in the kinds file"},
		{"no secret", "?resource=https://storage.azure.com/", "", 401, "X-IDENTITY-HEADER"},
		{"a guess", "?resource=https://storage.azure.com/", "guess", 401, "X-IDENTITY-HEADER"},
		{"a job that has ended", "?resource=https://storage.azure.com/", over, 401, "X-IDENTITY-HEADER"},
		{"another path", "/x?resource=https://storage.azure.com/", secret, 404, "GET /token"},
	} {
		if status, body := ask(t, endpoint+row.path, row.secret); status != row.status || !strings.Contains(body, row.says) {
			t.Errorf("%s: %d %s, want %d with %q", row.name, status, body, row.status, row.says)
		}
	}
	revoke()
	if status, _ := ask(t, endpoint+"?resource=https://storage.azure.com/", secret); status != 401 {
		t.Errorf("after the end of the job: %d, want 401", status)
	}
}

// TestExpiry: the time at which a token expires is in seconds since 1970, as a text.
func TestExpiry(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	p := start(t, func(context.Context, string) (string, time.Time, error) { return "token", at, nil })
	endpoint, secret, _ := p.Grant([]string{storageResource})
	if _, body := ask(t, endpoint+"?resource="+storageResource, secret); !strings.Contains(body, `"expires_on":"1795435200"`) {
		t.Errorf("answer = %s, want expires_on 1795435200", body)
	}
}

// TestConnections: a job that holds connections, idle ones or such with a body that never
// comes, gets no more of them than the proxy allows, and another job gets its token.
func TestConnections(t *testing.T) {
	for name, sent := range map[string]string{"idle": "", "no body": "GET /token HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			p, err := listen(echoSource, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			// The limit alone ends a connection, not its time-out.
			p.http.ReadHeaderTimeout, p.http.ReadTimeout, p.http.IdleTimeout = time.Hour, time.Hour, time.Hour
			p.serve()
			t.Cleanup(p.Close)
			endpoint, secret, revoke := p.Grant([]string{storageResource})
			defer revoke()
			var held []net.Conn
			for range 4 * maxConnections {
				conn, err := net.Dial("tcp", p.listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, sent) // fails if it was closed at once
				held = append(held, conn)
			}
			if status, body := ask(t, endpoint+"?resource="+storageResource, secret); status != 200 {
				t.Errorf("beside %d connections: %d %s, want a token", len(held), status, body)
			}
			// A connection has one goroutine or two.
			const most = 2*maxConnections + 100
			for late := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > most; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(late) {
					t.Fatalf("%d goroutines beside %d connections, want at most %d", runtime.NumGoroutine(), len(held), most)
				}
			}
		})
	}
}

// TestRate: a job that floods the proxy gets its burst, and another its own.
func TestRate(t *testing.T) {
	g := &grant{}
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	allowed := func(n int) (times int) {
		for range n {
			if g.take(now) {
				times++
			}
		}
		return times
	}
	if got := allowed(1000); got != burst {
		t.Errorf("of 1,000 requests at once %d are answered, want %d", got, burst)
	}
	now = now.Add(3 * time.Second)
	if got := allowed(1000); got != 3*perSecond {
		t.Errorf("three seconds later %d are answered, want 3", got)
	}
	now = now.Add(time.Hour)
	if got := allowed(1000); got != burst {
		t.Errorf("an hour later %d are answered, want %d", got, burst)
	}
}

// TestSourceFails: the program learns that there is no token, and not why: the
// reason may name the worker's identity.
func TestSourceFails(t *testing.T) {
	p := start(t, func(context.Context, string) (string, time.Time, error) {
		return "", time.Time{}, errors.New("secret reason")
	})
	endpoint, secret, revoke := p.Grant([]string{storageResource})
	defer revoke()
	if status, body := ask(t, endpoint+"?resource="+storageResource, secret); status != 500 || strings.Contains(body, "secret reason") {
		t.Errorf("answer = %d %s, want 500 without the reason", status, body)
	}
}

func ask(t *testing.T, url, secret string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-IDENTITY-HEADER", secret)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
