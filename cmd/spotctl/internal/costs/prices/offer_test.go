package prices

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
)

func TestUnusableOffers(t *testing.T) {
	server := market()
	server.Offers = append(server.Offers, pricing.Offer{Size: "Standard_D8s_v5", Region: "westeurope", Spot: 0.1, Regular: 0.4, Cores: 8,
		Restricted: true})
	sizes := []string{"Standard_B2s", "Standard_D8s_v5", "Standard_D99_v9"}
	r := ask(t, server, func(q *Query, _ *Options) { q.Sizes, q.Regions = sizes, []string{"westeurope"} })
	for size, want := range map[string]string{
		"Standard_B2s":    "not offered as Spot in westeurope",
		"Standard_D8s_v5": "not available to this subscription in westeurope: NotAvailableForSubscription",
		"Standard_D99_v9": "no size of this name in westeurope",
	} {
		o := offer(t, r, size, "westeurope")
		if wantProblem(t, o, true, want); o.Usable() {
			t.Errorf("%s is usable", size)
		}
	}

	// Without a sign-in the retail prices decide.
	r = ask(t, market(), func(q *Query, o *Options) {
		q.Sizes, q.Regions, o.Credential = sizes, []string{"westeurope", "moon"}, nil
	})
	wantProblem(t, offer(t, r, "Standard_B2s", "westeurope"), true, "no Spot price in westeurope: not offered as Spot there")
	wantProblem(t, offer(t, r, "Standard_D99_v9", "westeurope"), true, "the size does not exist")
	wantProblem(t, offer(t, r, "Standard_B2s", "moon"), true, "no price in moon")
}

// TestLocalDisks: local NVMe disks are another kind than a temporary disk, which such a size may have too.
func TestLocalDisks(t *testing.T) {
	for capabilities, want := range map[string]string{
		`[]`: "no local disk", `[{"name": "MaxResourceVolumeMB", "value": "0"}]`: "no local disk",
		`[{"name": "MaxResourceVolumeMB", "value": "76800"}]`:                                                   "a temporary disk",
		`[{"name": "MaxResourceVolumeMB", "value": "0"}, {"name": "NvmeDiskSizeInMiB", "value": "112640"}]`:     "local NVMe disks",
		`[{"name": "NvmeDiskSizeInMiB", "value": "112640"}, {"name": "MaxResourceVolumeMB", "value": "76800"}]`: "local NVMe disks",
	} {
		var s sku
		if err := json.Unmarshal([]byte(`{"capabilities": `+capabilities+`}`), &s); err != nil {
			t.Fatal(err)
		}
		if got := s.machine().Local; got != want {
			t.Errorf("local disks of %s = %q, want %q", capabilities, got, want)
		}
	}
}

// TestUnknownRegion: a region without data leaves gaps that ask for its name.
func TestUnknownRegion(t *testing.T) {
	r := ask(t, market(), func(q *Query, _ *Options) { q.Regions = []string{"moon"} })
	wantGap(t, r, "VM sizes", "what moon offers", "az account list-locations")
	wantGap(t, r, "Resource Graph", "eviction rates", "none for these sizes and regions: check their names")
	for _, g := range r.Gaps {
		if g.Source == "Resource Graph" && strings.Contains(g.Reason, "identity") {
			t.Errorf("a role is blamed although the sizes could be listed: %s", g)
		}
	}
	r = ask(t, market(), func(q *Query, _ *Options) { q.Regions, q.Subscription = []string{"moon"}, "" })
	wantGap(t, r, "Resource Graph", "price history", "check their names, and that the signed-in identity may read a subscription")
}

func TestSourcesDisagree(t *testing.T) {
	server := market()
	server.Offers[0].History = []pricing.Point{{USD: 0.025}}
	server.Offers[1].History = []pricing.Point{{USD: 0.0301}} // within rounding
	r := ask(t, server, nil)
	wantProblem(t, offer(t, r, "Standard_D2as_v5", "westeurope"), false,
		"two prices: 0.02000 (retail prices) and 0.02500 USD (Resource Graph)")
	if o := offer(t, r, "Standard_D2as_v5", "northeurope"); len(o.Problems) > 0 {
		t.Errorf("problems: %v", o.Problems)
	}
	// Prices in two currencies are not compared.
	r = ask(t, server, func(q *Query, _ *Options) { q.Currency = "eur" })
	if o := offer(t, r, "Standard_D2as_v5", "westeurope"); r.Currency != "EUR" || o.Spot != 0.02 || len(o.Problems) > 0 {
		t.Errorf("in %s: %+v", r.Currency, o)
	}
}

func TestOtherCurrencyThanAsked(t *testing.T) {
	server := market()
	server.Currency = "USD"
	r := ask(t, server, func(q *Query, _ *Options) { q.Currency = "XXX" })
	wantGap(t, r, "retail prices", "prices in XXX", `answered in "USD"`)
	if o := offer(t, r, "Standard_D2as_v5", "westeurope"); o.Spot != 0 || o.SpotUSD != 0.02 || !o.Usable() {
		t.Errorf("offer is %+v, want the price in USD alone", o)
	}
}

func TestOddRows(t *testing.T) {
	server := market()
	server.Offers[0].Eviction = "often"
	server.Offers[0].History = []pricing.Point{{Date: "yesterday", USD: 0.02}, {USD: -1}, {Date: "2026-10-01", USD: 0.03}}
	server.Offers[1].Spot = 0.2
	r := ask(t, server, nil)
	o := offer(t, r, "Standard_D2as_v5", "westeurope")
	wantProblem(t, o, false, `eviction rate "often" cannot be read`)
	if o.Eviction.Class != "" || len(o.History) != 2 {
		t.Errorf("offer is %+v, want no rate and two prices", o)
	}
	wantProblem(t, offer(t, r, "Standard_D2as_v5", "northeurope"), false, "Spot costs as much as a regular VM")
}

func TestParseEviction(t *testing.T) {
	for text, want := range map[string]Eviction{
		"0-5": {"0-5", 0, 5}, " 5-10% ": {"5-10", 5, 10}, "20+": {"20+", 20, 25}, "20+%": {"20+", 20, 25}, "50+": {"50+", 50, 50},
	} {
		if got, ok := ParseEviction(text); !ok || got != want {
			t.Errorf("ParseEviction(%q) = %v, %t, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "5", "10-5", "a-b", "5-", "-5", "-1-5", "5-101", "NaN-5", "101+", "5-NaN"} {
		if got, ok := ParseEviction(text); ok {
			t.Errorf("ParseEviction(%q) = %v, want a refusal", text, got)
		}
	}
}

func TestNormalize(t *testing.T) {
	q, err := Query{
		Sizes: []string{" d2", "standard_D2as_v5", "Standard_d2AS_v5", "basic_A1", ""}, Regions: []string{"West Europe", "westeurope",
			"UK South"}, Currency: " eur",
	}.Normalize()
	if err != nil || strings.Join(q.Sizes, ",") != "Standard_D2,Standard_D2as_v5,Basic_A1" ||
		strings.Join(q.Regions, ",") != "westeurope,uksouth" || q.Currency != "EUR" || q.Count != 1 {
		t.Errorf("Normalize = %+v, %v", q, err)
	}
	one := []string{"a"}
	for want, q := range map[string]Query{
		"no VM size is given":                  {Regions: []string{"westeurope"}},
		"no region is given":                   {Sizes: one},
		`VM size "Standard_a' or '1" is not`:   {Sizes: []string{"a' or '1"}, Regions: []string{"westeurope"}},
		`region "west')or('" is not`:           {Sizes: one, Regions: []string{"west') or ('"}},
		`currency "EURO" is not a code`:        {Sizes: one, Regions: []string{"westeurope"}, Currency: "euro"},
		`subscription "mine" is not an id`:     {Sizes: one, Regions: []string{"westeurope"}, Subscription: "mine"},
		"31 regions: ask for at most 30 at on": {Sizes: one, Regions: many("r", 31)},
		"101 VM sizes: ask for at most 100 at": {Sizes: many("s", 101), Regions: []string{"westeurope"}},
	} {
		if _, err := q.Normalize(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Normalize = %v, want %q", err, want)
		}
	}
}

func many(start string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, start+strings.Repeat("x", i+2))
	}
	return all
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		address string
		fine    bool
	}{
		{"", true},
		{"https://prices.example", true},
		{"https://prices.example/", true},
		{"http://127.0.0.1:8080", true},
		{"http://prices.example", false},
		{"http://127.0.0.1.evil.example", false},
		{"https://user:hidden@prices.example", false},
		{"prices.example", false},
		{"https://prices.example/path", false},
	} {
		_, err := New(Options{RetailEndpoint: c.address, ManagementEndpoint: c.address, Credential: signedIn{}})
		if (err == nil) != c.fine {
			t.Errorf("New with %q = %v", c.address, err)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error repeats a password: %v", err)
		}
	}
}
