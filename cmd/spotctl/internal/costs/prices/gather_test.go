package prices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
)

func TestGather(t *testing.T) {
	server := market()
	r := ask(t, server, func(q *Query, _ *Options) { q.Zones = true })
	if len(r.Gaps) > 0 {
		t.Errorf("gaps: %v", r.Gaps)
	}
	o := offer(t, r, "Standard_D2as_v5", "westeurope")
	if o.Spot != 0.02 || o.Regular != 0.1 || o.SpotUSD != 0.02 || !o.Usable() || len(o.Problems) > 0 {
		t.Errorf("offer is %+v, want 0.02, 0.1 and 0.02 without problems", o)
	}
	if len(o.History) != 2 || o.History[0].USD != 0.03 || !o.History[0].From.Equal(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("history is %v, want 0.03 from October first", o.History)
	}
	if want := (Eviction{"5-10", 5, 10}); o.Eviction != want {
		t.Errorf("eviction rate is %v, want %v", o.Eviction, want)
	}
	if len(o.Placement) != 3 || o.Placement[0] != (Placement{Zone: "1", Score: "High"}) {
		t.Errorf("placement is %v, want High in three zones", o.Placement)
	}
	if m := o.Machine; m == nil || m.Cores != 2 || m.Architecture != "x64" || !m.Spot || m.Restricted != "" ||
		strings.Join(m.Zones, "") != "123" {
		t.Errorf("machine is %+v", m)
	}
	if o.Quota == nil || o.Quota.Left() != 98 {
		t.Errorf("quota is %v, want 98 cores left", o.Quota)
	}
	if o := offer(t, r, "Standard_D2as_v5", "northeurope"); o.Eviction.High != openClass || o.Placement[0].Score != "Low" {
		t.Errorf("offer is %+v, want 20+ and Low", o)
	}
	wantProblem(t, offer(t, r, "Standard_D4s_v5", "northeurope"), true, "no size of this name in northeurope")
}

func TestWindowsPrices(t *testing.T) {
	r := ask(t, market(), func(q *Query, _ *Options) { q.Windows = true })
	if o := offer(t, r, "Standard_D2as_v5", "westeurope"); !(o.Spot > 0.119 && o.Spot < 0.121) || !(o.Regular > 0.199 && o.Regular < 0.201) {
		t.Errorf("prices are %v and %v, want 0.12 and 0.2", o.Spot, o.Regular)
	}
}

// TestRequests: 20 sizes in 5 regions take 17 requests.
func TestRequests(t *testing.T) {
	server := &pricing.Server{}
	var sizes, regions []string
	for s := range 20 {
		sizes = append(sizes, fmt.Sprintf("Standard_D%ds_v5", s+1))
	}
	for r := range 5 {
		regions = append(regions, fmt.Sprintf("region%d", r))
		for _, size := range sizes {
			server.Offers = append(server.Offers, pricing.Offer{Size: size, Region: regions[r], Spot: 0.02, Regular: 0.1, Eviction: "0-5", Cores: 2,
				History: []pricing.Point{{USD: 0.02}}})
		}
	}
	r := ask(t, server, func(q *Query, _ *Options) { q.Sizes, q.Regions = sizes, regions })
	for service, want := range map[string]int{"retail": 1, "history": 1, "evictions": 1, "skus": 5, "usages": 5, "placement": 4} {
		if got := server.Calls(service); got != want {
			t.Errorf("%d requests to %s, want %d", got, service, want)
		}
	}
	if n := server.All(); n != 17 || len(r.Offers) != 100 || len(r.Gaps) > 0 {
		t.Errorf("%d requests, %d offers and gaps %v, want 17, 100 and none", n, len(r.Offers), r.Gaps)
	}
	for _, o := range r.Offers {
		if !o.Usable() || o.Spot == 0 {
			t.Errorf("%s in %s: %+v", o.Size, o.Region, o)
		}
	}
}

func TestPages(t *testing.T) {
	server := market()
	server.Pages.Size = 1
	r := ask(t, server, nil)
	if o := offer(t, r, "Standard_D2as_v5", "westeurope"); o.Spot != 0.02 || o.SpotUSD != 0.02 || o.Machine == nil || o.Quota == nil ||
		len(r.Gaps) > 0 {
		t.Errorf("offer is %+v with gaps %v, want all of it", o, r.Gaps)
	}
	if server.Calls("retail") < 10 || server.Calls("history") != 3 {
		t.Errorf("%d and %d pages, want one for each item", server.Calls("retail"), server.Calls("history"))
	}
}

// TestShortAndEmptyPages: whatever pages the lists have, all of their items are read.
func TestShortAndEmptyPages(t *testing.T) {
	want := ask(t, market(), nil)
	for seed := range uint64(50) {
		server := market()
		server.Pages.Seed = seed + 1
		r := ask(t, server, nil)
		if !reflect.DeepEqual(r.Offers, want.Offers) || len(r.Gaps) > 0 {
			t.Fatalf("with seed %d: offers %+v and gaps %v, want %+v and none", seed, r.Offers, r.Gaps, want.Offers)
		}
	}
}

// TestPageFailsInTheMiddle: what came before is shown.
func TestPageFailsInTheMiddle(t *testing.T) {
	for _, service := range []string{"retail", "history", "evictions", "skus"} {
		t.Run(service, func(t *testing.T) {
			server := market()
			server.Pages.Size = 1
			server.Fail = func(of string, n int, w http.ResponseWriter, _ *http.Request) bool {
				if of != service || n < 2 {
					return false
				}
				pricing.Refuse(w, http.StatusBadRequest, "BadRequest", "the page is \x1b[31mgone")
				return true
			}
			r := ask(t, server, func(q *Query, _ *Options) { q.Regions = []string{"westeurope"} })
			source := map[string]string{"retail": "retail prices", "skus": "VM sizes"}[service]
			if source == "" {
				source = "Resource Graph"
			}
			wantGap(t, r, source, "page 2 failed, what was on the pages before is shown", "400 BadRequest: the page is \ufffd[31mgone")
			if o := offer(t, r, "Standard_D2as_v5", "westeurope"); !o.Usable() {
				t.Errorf("an offer of which not all is known is refused: %+v", o.Problems)
			}
		})
	}
}

// TestEndlessPages: a list that leads to itself ends.
func TestEndlessPages(t *testing.T) {
	server := market()
	server.Fail = func(service string, _ int, w http.ResponseWriter, r *http.Request) bool {
		switch service {
		case "retail":
			fmt.Fprintf(w, `{"Items":[],"NextPageLink":"https://prices.azure.com/api/retail/prices?%s"}`, r.URL.RawQuery)
		case "history":
			_, _ = io.WriteString(w, `{"totalRecords":1,"count":1,"data":[],"resultTruncated":"true","$skipToken":"same"}`)
		case "skus":
			fmt.Fprintf(w, `{"value":[],"nextLink":"https://elsewhere.example%s"}`, r.URL.RequestURI())
		default:
			return false
		}
		return true
	}
	r := ask(t, server, func(q *Query, _ *Options) { q.Regions = []string{"westeurope"} })
	wantGap(t, r, "retail prices", "page 2")
	wantGap(t, r, "Resource Graph", "its link leads nowhere")
	wantGap(t, r, "VM sizes", "its link leads nowhere")
	if server.Calls("history") > 3 {
		t.Errorf("%d pages were asked for", server.Calls("history"))
	}
}

// TestThrottled: a wait that the service asks for is kept; a wait that is too long is
// reported.
func TestThrottled(t *testing.T) {
	for _, c := range []struct {
		wait  string
		after time.Duration
		calls int
	}{{"7", 7 * time.Second, 2}, {"600", 0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			server := market()
			server.Fail = func(service string, n int, w http.ResponseWriter, _ *http.Request) bool {
				if service != "history" || n > 1 {
					return false
				}
				w.Header().Set("Retry-After", c.wait)
				pricing.Refuse(w, http.StatusTooManyRequests, "RateLimiting", "Please retry after some seconds")
				return true
			}
			begin := time.Now()
			r := ask(t, server, nil)
			if took := time.Since(begin); took != c.after || server.Calls("history") != c.calls {
				t.Errorf("asked %d times in %s, want %d times in %s", server.Calls("history"), took, c.calls, c.after)
			}
			if c.calls == 1 {
				wantGap(t, r, "Resource Graph", "price history", "asks for fewer requests", "after 600 s")
			} else if len(r.Gaps) > 0 {
				t.Errorf("gaps: %v", r.Gaps)
			}
		})
	}
}

// TestRefused: each source that refuses leaves a gap that says what to do, and the others
// are shown.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		service, source string
		status          int
		code, want      string
	}{
		{"retail", "retail prices", 403, "", "access is refused"},
		{"history", "Resource Graph", 403, "AuthorizationFailed", "lacks the role Reader on a subscription"},
		{"evictions", "Resource Graph", 401, "InvalidAuthenticationTokenTenant", "az login --tenant"},
		{"skus", "VM sizes", 403, "AuthorizationFailed", "lacks the role Reader on the subscription"},
		{"usages", "quota", 404, "SubscriptionNotFound", "the subscription does not exist"},
		{"usages", "quota", 400, "NoRegisteredProviderFound", "400 NoRegisteredProviderFound: no such location"},
		{"placement", "placement scores", 403, "AuthorizationFailed", "lacks the role Compute Recommendations Role"},
		{"placement", "placement scores", 501, "", "the service has a problem (501): try again later"},
	} {
		t.Run(fmt.Sprint(c.service, c.status), func(t *testing.T) {
			server := market()
			server.Fail = func(service string, _ int, w http.ResponseWriter, _ *http.Request) bool {
				if service == c.service {
					pricing.Refuse(w, c.status, c.code, "no such location\nand more")
				}
				return service == c.service
			}
			r := ask(t, server, nil)
			wantGap(t, r, c.source, c.want)
			o := offer(t, r, "Standard_D2as_v5", "westeurope")
			if !o.Usable() || (o.Spot == 0) != (c.service == "retail") || (o.SpotUSD == 0) != (c.service == "history") {
				t.Errorf("the other sources are not shown: %+v", o)
			}
		})
	}
}

func TestUnreadableAnswers(t *testing.T) {
	server := market()
	server.Fail = func(_ string, _ int, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = io.WriteString(w, "<html>sign in to the hotel's network</html>")
		return true
	}
	r := ask(t, server, nil)
	for _, source := range []string{"retail prices", "VM sizes", "quota", "placement scores"} {
		wantGap(t, r, source, "cannot be read", "is there a proxy in between?")
	}
	wantGap(t, r, "Resource Graph", "price history not shown")
}

func TestNoSignIn(t *testing.T) {
	for _, c := range []struct {
		change func(*Query, *Options)
		want   string
	}{
		{func(_ *Query, o *Options) { o.Credential = nil }, "there is no sign-in"},
		{func(_ *Query, o *Options) { o.Credential = signedOut{errSignedOut} }, "not signed in to Azure: run az login, or set AZURE_CLIENT_ID " +
			"to the managed identity of this VM"},
		{func(_ *Query, o *Options) { o.Credential = signedOut{errors.New("token expired\nmore")} }, "(token expired)"},
	} {
		server := market()
		r := ask(t, server, c.change)
		wantGap(t, r, "sign-in", c.want)
		if len(r.Gaps) != 1 || server.All() != server.Calls("retail") {
			t.Errorf("gaps are %v after %d requests, want one gap and retail prices alone", r.Gaps, server.All())
		}
		if o := offer(t, r, "Standard_D2as_v5", "westeurope"); o.Spot != 0.02 {
			t.Errorf("retail prices are not shown: %+v", o)
		}
	}
}

func TestNoSubscription(t *testing.T) {
	server := market()
	r := ask(t, server, func(q *Query, _ *Options) { q.Subscription = "" })
	wantGap(t, r, "subscription", "--subscription")
	if o := offer(t, r, "Standard_D2as_v5", "westeurope"); o.SpotUSD == 0 || o.Eviction.Class == "" {
		t.Errorf("Resource Graph was not asked: %+v", o)
	}
}

func TestNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err  error
			want string
		}{
			{&net.DNSError{Err: "no such host", Name: "prices.azure.com", IsNotFound: true},
				"no network: the name prices.azure.com cannot be resolved"},
			{&url.Error{Op: "Get", URL: "https://prices.azure.com/x?secret", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}},
				"no network: prices.azure.com cannot be reached"},
			{context.DeadlineExceeded, "no answer in time"},
		} {
			r := ask(t, nil, func(_ *Query, o *Options) { o.Transport = broken{c.err} })
			wantGap(t, r, "retail prices", c.want)
		}
	})
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client, err := New(Options{Credential: signedIn{}, Transport: broken{context.Canceled}})
	if err != nil {
		t.Fatal(err)
	}
	q, _ := Query{Sizes: []string{"a"}, Regions: []string{"westeurope"}}.Normalize()
	if _, err := Gather(ctx, client, q, today); !errors.Is(err, context.Canceled) {
		t.Errorf("Gather = %v, want canceled", err)
	}
}
