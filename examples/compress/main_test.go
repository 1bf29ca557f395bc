package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestFromEnvironment(t *testing.T) {
	const key = "bm90IGEga2V5"
	for _, c := range []struct{ environment, want string }{
		{"", "set COMPRESS_FROM and COMPRESS_TO"},
		{"COMPRESS_FROM=data COMPRESS_TO=,", "set COMPRESS_FROM and COMPRESS_TO"},
		{"COMPRESS_FROM=data COMPRESS_TO=out", "no storage account"},
		{"COMPRESS_FROM=data COMPRESS_TO=out AZURE_STORAGE_CONNECTION_STRING=AccountKey=" + key,
			"AZURE_STORAGE_CONNECTION_STRING cannot be used"},
		{"COMPRESS_FROM=data,more COMPRESS_TO=out AZURE_STORAGE_CONNECTION_STRING=AccountName=x;AccountKey=" + key, ""},
		{"COMPRESS_FROM=data,more COMPRESS_TO=out SPOTWORKER_ACCOUNT=contoso", ""},
	} {
		settings := map[string]string{}
		for s := range strings.FieldsSeq(c.environment) {
			name, value, _ := strings.Cut(s, "=")
			settings[name] = value
		}
		got, err := fromEnvironment(func(name string) string { return settings[name] })
		switch {
		case c.want != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), key) {
				t.Errorf("settings of %q = %v, want %s", c.environment, err, c.want)
			}
		case err != nil || strings.Join(got.sources, " ") != "data more" || !slices.Equal(got.targets, []string{"out"}):
			t.Errorf("settings of %q = %+v, %v", c.environment, got, err)
		}
	}
}

// TestEncodedBlob: a blob that was stored with a content encoding arrives as it was
// stored.
func TestEncodedBlob(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("the client asks for %s", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "stored")
	}))
	defer server.Close()
	client := newClient()
	defer client.CloseIdleConnections()
	reply, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if got, err := io.ReadAll(reply.Body); string(got) != "stored" || err != nil {
		t.Errorf("body = %q, %v, want what was stored", got, err)
	}
}
