package azure

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// secret stands for a key or a signature that no error may repeat.
const secret = "c2VjcmV0c2VjcmV0c2VjcmV0"

func TestConnectRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		config AccountConfig
		want   string
	}{
		"nothing":                      {AccountConfig{}, "no storage account"},
		"account with an address":      {AccountConfig{Account: "acct.blob.core.windows.net"}, "3 to 24"},
		"account that is another host": {AccountConfig{Account: "example.com/"}, "3 to 24"},
		"account in capitals":          {AccountConfig{Account: "Acct"}, "3 to 24"},
		"endpoint without a scheme":    {AccountConfig{Account: "acct", BlobEndpoint: "acct.example"}, "--blob-endpoint"},
		"endpoint without a host":      {AccountConfig{Account: "acct", QueueEndpoint: "https:///x"}, "--queue-endpoint"},
		"endpoint of another kind":     {AccountConfig{Account: "acct", BlobEndpoint: "ftp://acct.example"}, "--blob-endpoint"},
		"token over http":              {AccountConfig{Account: "acct", BlobEndpoint: "http://127.0.0.1:1"}, "https only"},
		"endpoint with a signature": {AccountConfig{Account: "acct", BlobEndpoint: "https://acct.example/?sig=" + secret},
			"--blob-endpoint"},
		"endpoint with a password": {AccountConfig{Account: "acct", QueueEndpoint: "http://u:" + secret + "@acct.example"},
			"--queue-endpoint"},
		"connection string of nothing":   {AccountConfig{ConnectionString: secret}, "AccountKey"},
		"connection string, key broken":  {AccountConfig{ConnectionString: "AccountName=acct;AccountKey=!" + secret}, "AccountKey"},
		"connection string without key":  {AccountConfig{ConnectionString: "AccountName=acct;Other=" + secret}, "AccountKey"},
		"connection string without name": {AccountConfig{ConnectionString: "AccountKey=" + secret}, "AccountName"},
		"connection string over http": {AccountConfig{ConnectionString: "BlobEndpoint=http://storage.example/acct;" +
			"QueueEndpoint=http://storage.example/acct;" +
			"AccountName=acct;AccountKey=" + secret}, "unencrypted"},
		"queues over http": {AccountConfig{ConnectionString: "BlobEndpoint=https://storage.example/acct;QueueEndpoint=http://10.0.0.4/acct;" +
			"AccountName=acct;AccountKey=" + secret}, "http://10.0.0.4"},
	} {
		account, err := Connect(row.config)
		if err == nil || account != nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Connect = %v, want an error with %q", name, err, row.want)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	}
}

// TestPlainHTTP: this machine, and the account of an emulator whose key is public,
// may be reached without TLS.
func TestPlainHTTP(t *testing.T) {
	for _, row := range []struct{ host, account string }{
		{"127.0.0.1:10000", "acct"}, {"localhost:10000", "acct"}, {"acct.blob.localhost:10000", "acct"}, {"[::1]:10000", "acct"},
		{"azurite:10000", emulatorAccount},
	} {
		at := "http://" + row.host + "/" + row.account
		_, err := Connect(AccountConfig{ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";AccountName=" + row.account +
			";AccountKey=" + secret})
		if err != nil {
			t.Errorf("Connect to %s as %s = %v, want no error", row.host, row.account, err)
		}
	}
}

// TestPlainString: a connection string is read as files, secrets and shells have it.
func TestPlainString(t *testing.T) {
	const want = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=a+b/c==;EndpointSuffix=core.windows.net"
	for name, given := range map[string]string{
		"as the portal has it": want, "line feed": want + "\n", "quotes": " \"" + want + "\"\r\n", "byte order mark": "\ufeff'" + want + "'",
		"empty settings": ";;" + want + ";", "spaces": strings.NewReplacer(";", " ; ", "=core", " = core").Replace(want),
		"lower case": strings.NewReplacer("AccountName", "accountname", "AccountKey", "ACCOUNTKEY").Replace(want),
	} {
		if got := plainString(given); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	account, err := Connect(AccountConfig{ConnectionString: "UseDevelopmentStorage=true;"})
	if err != nil || account.blobs.URL() != "http://127.0.0.1:10000/"+emulatorAccount+"/" ||
		account.queues.URL() != "http://127.0.0.1:10001/"+emulatorAccount+"/" {
		t.Errorf("UseDevelopmentStorage=true: %v, want Azurite on this machine", err)
	}
}

// Connect sends nothing, for every way to the account.
func TestConnectSendsNothing(t *testing.T) {
	refuse := answer(func(r *http.Request) (*http.Response, error) {
		t.Errorf("Connect sent a request to %s", r.URL)
		return nil, http.ErrAbortHandler
	})
	for name, row := range map[string]struct {
		config AccountConfig
		host   string
	}{
		"connection string": {AccountConfig{ConnectionString: storage.New(storage.Options{}).ConnectionString()}, "blob.emulator"},
		"managed identity":  {AccountConfig{Account: "acct", ClientID: "00000000-0000-0000-0000-000000000001"}, "acct.blob.core.windows.net"},
		"own sign-in":       {AccountConfig{Account: "acct"}, "acct.blob.core.windows.net"},
		"other cloud":       {AccountConfig{Account: "acct", BlobEndpoint: "https://acct.blob.example"}, "acct.blob.example"},
	} {
		row.config.Transport = refuse
		account, err := Connect(row.config)
		if err != nil || account.Host() != row.host {
			t.Errorf("%s: Connect = %v, want an account at %s", name, err, row.host)
		}
	}
}

func TestTelemetryID(t *testing.T) {
	for version, want := range map[string]string{"": "spotworker", "1.2.3": "spotworker/1.2.3",
		"1.2.3-rc.1+0123456789": "spotworker/1.2.3-rc.1+01"} {
		if got := telemetryID(version); got != want || len(got) > 24 {
			t.Errorf("telemetryID(%q) = %q, want %q", version, got, want)
		}
	}
}

// The metadata service refuses requests that a proxy forwards, and a token must not go
// through a proxy.
func TestIdentityUsesNoProxy(t *testing.T) {
	if newIdentityTransport().Proxy != nil {
		t.Error("the transport for tokens has a proxy, want none")
	}
}
