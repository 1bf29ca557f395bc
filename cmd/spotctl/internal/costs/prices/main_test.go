package prices

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const subscription = "11111111-2222-3333-4444-555555555555"

var today = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// signedIn is a credential with a token.
type signedIn struct{}

func (signedIn) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// signedOut is a credential without one.
type signedOut struct{ err error }

func (s signedOut) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, s.err
}

// inProcess answers requests without a network, so that waits are in virtual time.
type inProcess struct{ handler http.Handler }

// Do implements policy.Transporter.
func (p inProcess) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// broken is a transport that fails.
type broken struct{ err error }

// Do implements policy.Transporter.
func (b broken) Do(*http.Request) (*http.Response, error) { return nil, b.err }

// market has two sizes in two regions, and a size that is not offered as Spot.
func market() *pricing.Server {
	history := []pricing.Point{{Date: "2026-11-01T00:00:00Z", USD: 0.02}, {Date: "2026-10-01T00:00:00Z", USD: 0.03}}
	return &pricing.Server{Offers: []pricing.Offer{
		{Size: "Standard_D2as_v5", Region: "westeurope", Spot: 0.02, Regular: 0.1, History: history, Eviction: "5-10", Cores: 2},
		{Size: "Standard_D2as_v5", Region: "northeurope", Spot: 0.03, Regular: 0.1, Eviction: "20+", Cores: 2, Score: "Low",
			History: []pricing.Point{{USD: 0.03}}},
		{Size: "Standard_D4s_v5", Region: "westeurope", Spot: 0.05, Regular: 0.2, Eviction: "0-5", Cores: 4,
			History: []pricing.Point{{USD: 0.05}}},
		{Size: "Standard_B2s", Region: "westeurope", Regular: 0.04, Cores: 2, NoSpot: true},
	}}
}

// ask gathers from a server in this process.
func ask(t *testing.T, server http.Handler, change func(*Query, *Options)) Report {
	t.Helper()
	q := Query{Sizes: []string{"D2as_v5", "Standard_D4s_v5"}, Regions: []string{"West Europe", "northeurope"}, Subscription: subscription}
	o := Options{Credential: signedIn{}, Transport: inProcess{server}}
	if change != nil {
		change(&q, &o)
	}
	q, err := q.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Gather(t.Context(), client, q, today)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// offer returns one offer of a report.
func offer(t *testing.T, r Report, size, region string) Offer {
	t.Helper()
	for _, o := range r.Offers {
		if o.Size == size && o.Region == region {
			return o
		}
	}
	t.Fatalf("no offer of %s in %s", size, region)
	return Offer{}
}

// wantGap fails unless one gap of the source contains all texts.
func wantGap(t *testing.T, r Report, source string, texts ...string) {
	t.Helper()
	for _, g := range r.Gaps {
		all := g.Source == source
		for _, text := range texts {
			all = all && strings.Contains(g.String(), text)
		}
		if all {
			return
		}
	}
	t.Errorf("gaps are %q, want one of %s with %q", r.Gaps, source, texts)
}

// wantProblem fails unless the offer has a problem with the text.
func wantProblem(t *testing.T, o Offer, fatal bool, text string) {
	t.Helper()
	for _, p := range o.Problems {
		if p.Fatal == fatal && strings.Contains(p.Text, text) {
			return
		}
	}
	t.Errorf("problems of %s in %s are %+v, want one with %q (fatal: %t)", o.Size, o.Region, o.Problems, text, fatal)
}

var errSignedOut = errors.New("not signed in to Azure: run az login or azd auth login on this machine: ChainedTokenCredential: failed")
