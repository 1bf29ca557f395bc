package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var issued = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func claims() Claims {
	return Claims{
		Audience: "https://storage.azure.com/", ClientID: "client", ObjectID: "object", ResourceID: "/subscriptions/s",
		NotBefore: issued, Expires: issued.Add(time.Hour),
	}
}

func TestVerifyReturnsWhatWasIssued(t *testing.T) {
	i := NewIssuer()
	text := i.Issue(claims())
	for _, now := range []time.Time{issued, issued.Add(time.Hour - time.Nanosecond)} {
		got, err := i.Verify(text, now)
		if err != nil {
			t.Fatalf("Verify at %s: %v", now, err)
		}
		if diff := cmp.Diff(claims(), got); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	}
}

// The names are read by clients and other emulators.
func TestClaimsAreNamedAsEntraNamesThem(t *testing.T) {
	i := NewIssuer()
	parts := strings.Split(i.Issue(claims()), ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatalf("claims are not base64: %v", err)
	}
	got := map[string]any{}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("claims %s: %v", body, err)
	}
	want := map[string]any{
		"aud": "https://storage.azure.com/", "iss": "https://sts.windows.net/" + i.Tenant() + "/",
		"iat": 1772366400.0, "nbf": 1772366400.0, "exp": 1772370000.0,
		"appid": "client", "oid": "object", "sub": "object", "tid": i.Tenant(),
		"idtyp": "app", "ver": "1.0", "xms_mirid": "/subscriptions/s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestVerifyRefuses(t *testing.T) {
	i := NewIssuer()
	good := i.Issue(claims())
	parts := strings.Split(good, ".")
	none := encode([]byte(`{"typ":"JWT","alg":"none"}`))
	garbled := parts[0] + "." + encode([]byte("no JSON"))
	tests := []struct {
		name, token string
		now         time.Time
		want        error
	}{
		{"a second too early", good, issued.Add(-time.Second), ErrNotYetValid},
		{"at its end", good, issued.Add(time.Hour), ErrExpired},
		{"of another issuer", NewIssuer().Issue(claims()), issued, ErrSignature},
		{"with other claims", parts[0] + "." + encode([]byte(`{"aud":"x"}`)) + "." + parts[2], issued, ErrSignature},
		{"without an algorithm", none + "." + parts[1] + ".", issued, ErrSignature},
		{"signed under another header", none + "." + parts[1] + "." + encode(i.sign(none+"."+parts[1])), issued, ErrSignature},
		{"without a signature", parts[0] + "." + parts[1] + ".", issued, ErrSignature},
		{"with claims that are no JSON", garbled + "." + encode(i.sign(garbled)), issued, ErrMalformed},
		{"with claims that are no base64", parts[0] + ".?." + encode(i.sign(parts[0]+".?")), issued, ErrMalformed},
		{"with a signature that is no base64", parts[0] + "." + parts[1] + ".?", issued, ErrMalformed},
		{"of two parts", parts[0] + "." + parts[1], issued, ErrMalformed},
		{"of four parts", good + ".x", issued, ErrMalformed},
		{"empty", "", issued, ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := i.Verify(tt.token, tt.now); !errors.Is(err, tt.want) || got != (Claims{}) {
				t.Errorf("Verify = %+v, %v, want no claims and %v", got, err, tt.want)
			}
		})
	}
}
