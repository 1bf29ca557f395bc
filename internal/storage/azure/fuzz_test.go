package azure

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzConnect gives any setting that an operator may make by mistake: it is refused in
// words that do not repeat a secret, or leads where it says, and tokens go over TLS only.
func FuzzConnect(f *testing.F) {
	key := "a2V5a2V5a2V5a2V5"
	for _, seed := range [][3]string{
		{"", "acct", ""}, {"", "", ""}, {"", "evil.example/x#", ""}, {"", "acct", "https://acct.blob.core.windows.net"},
		{"", "acct", "http://acct.example"},
		{"", "acct", "https://u:" + key + "@acct.example"}, {"", "acct", "https://acct.example/?sig=" + key},
		{"", "acct", "https://acct.example/%zz"},
		{"AccountName=acct;AccountKey=" + key, "", ""}, {"AccountName=acct;AccountKey=!" + key, "", ""}, {key, "", ""},
		{"AccountKey=" + key, "", ""},
		{"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=" + key +
			";BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:2/a;", "", ""},
		{"BlobEndpoint=https://acct.example;SharedAccessSignature=sv=1&sig=" + key, "", ""}, {";;=;", "", ""},
		{"AccountName=;AccountKey=;BlobEndpoint=", "", ""},
		{"AccountName=acct;AccountKey=" + key + ";EndpointSuffix=evil.example", "", ""}, {"accountname=acct;accountkey=" + key, "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, connection, account, endpoint string) {
		c := AccountConfig{ConnectionString: connection, Account: account, ClientID: "id", BlobEndpoint: endpoint}
		a, err := Connect(c)
		if err != nil {
			for _, secret := range secretsOf(c) {
				if strings.Contains(Explain(err), secret) {
					t.Fatalf("error repeats %q: %v", secret, err)
				}
			}
			return
		}
		if connection == "" && endpoint == "" && a.Host() != account+".blob.core.windows.net" {
			t.Fatalf("account %q leads to %s", account, a.Host())
		}
		if u, err := url.Parse(a.blobs.URL()); connection == "" && (err != nil || u.Scheme != "https") {
			t.Fatalf("endpoint %q leads to %s, %v", endpoint, a.blobs.URL(), err)
		}
	})
}

// secretsOf are the parts of a configuration that may be secret, if they are long
// enough to be told from words.
func secretsOf(c AccountConfig) (secrets []string) {
	parts := strings.Split(c.ConnectionString, ";")
	if u, err := url.Parse(c.BlobEndpoint); err == nil {
		password, _ := u.User.Password()
		parts = append(parts, "password="+password, u.RawQuery)
	}
	for _, part := range parts {
		if _, value, ok := strings.Cut(part, "="); ok && len(value) > 12 && !strings.Contains(c.Account, value) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}
