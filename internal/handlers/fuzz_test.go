package handlers

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// FuzzDigestPayload: a payload that is accepted names a blob whose name reaches the
// service as it is written, in a container whose name is one.
func FuzzDigestPayload(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"container":"data","blob":"2026/a.tar"}`, `{"container":"data","blob":"../other/a"}`, `{"container":"data","blob":"a/./b"}`,
		`{"container":"data","blob":"a\\b"}`, `{"container":"data","blob":"a."}`, `{"container":"data","blob":"a?comp=x#y"}`,
		`{"container":"data","blob":"%2e%2e/a"}`,
		`{"container":"https://evil.example/x","blob":"a"}`, `{"container":"data","blob":"https://evil.example/x"}`,
		`{"container":"data","blob":"a\u0000b"}`,
		`{"container":"data","blob":"a","version":"2026-01-31T09:30:00.1234567Z"}`, `{"container":"data","blob":"a","version":"x&comp=y"}`,
		`{"container":1}`, `[`,
		`{"container":"data","blob":"\ud800"}`, `{"container":"data","blob":"//a"}`, `{"container":"data","blob":" "}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p DigestPayload
		if decodePayload(raw, &p, "{}") != nil || firstWrong(sourceFields(p.Container, p.Blob, p.Version)) != nil {
			return
		}
		address, err := url.JoinPath("https://acct.blob.core.windows.net/c", url.PathEscape(p.Blob))
		if err != nil {
			t.Fatalf("blob %q makes no address: %v", p.Blob, err)
		}
		u, err := url.Parse(address)
		if err != nil || u.Host != "acct.blob.core.windows.net" || u.Path != "/c/"+p.Blob || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("blob %q leads to %s, %v", p.Blob, address, err)
		}
		if strings.ContainsAny(p.Version, "&=?#/ ") || p.Container == "" {
			t.Fatalf("payload %+v was accepted", p)
		}
	})
}

// FuzzDigestState: a recorded state is rejected, or continues within its blob and is
// written again as it was read.
func FuzzDigestState(f *testing.F) {
	c := newCursor(`"0x1"`, 100)
	c.add([]byte("some bytes"))
	good, err := c.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, change := range [][2]string{
		{`"offset":10`, `"offset":-1`}, {`"offset":10`, `"offset":101`}, {`"offset":10`, `"offset":1e2`},
		{`"size":100`, `"size":9223372036854775807`},
		{`"etag":"`, `"etag":"","x":"`}, {`"hash":"`, `"hash":"A`}, {`"hash":"`, `"hash":"","x":"`}, {`{`, `{"restarts":-5,`}, {`{`, `[`},
		{`}`, ``}, {`{`, `{"offset":50,`},
	} {
		f.Add([]byte(strings.Replace(string(good), change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := decodeState(raw)
		if err != nil {
			return
		}
		if c.offset < 0 || c.offset > c.size || c.etag == "" || c.sum == nil || c.restarts < 0 {
			t.Fatalf("state %s was read as %+v", raw, c)
		}
		again, err := c.encode()
		if err != nil || !json.Valid(again) {
			t.Fatalf("state cannot be written: %v", err)
		}
		if back, err := decodeState(again); err != nil || back.offset != c.offset || back.size != c.size || back.etag != c.etag {
			t.Fatalf("written and read again as %+v, %v, want %+v", back, err, c)
		}
	})
}
