package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/internal/lab/emulator/pages"
	"github.com/spotworker/spotworker/internal/lab/emulator/pricing"
	"github.com/spotworker/spotworker/internal/test/script"
)

// TestCosts runs the commands about costs against services on loopback, at $MARKET. The
// scripts are in testdata/costs.
func TestCosts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/costs",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			services := http.NewServeMux()
			services.Handle("/", market())
			services.HandleFunc("/token", giveToken)
			server := httptest.NewServer(services)
			env.Defer(server.Close)
			empty := httptest.NewServer(http.NotFoundHandler())
			env.Defer(empty.Close)
			env.Setenv("MARKET", server.URL)
			env.Setenv("NOTHING", empty.URL)
			// A managed identity as App Service has it; Azure's own address is never asked.
			env.Setenv("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000001")
			env.Setenv("IDENTITY_ENDPOINT", server.URL+"/token")
			env.Setenv("IDENTITY_HEADER", "header")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": script.Status},
	})
}

// giveToken issues a token to the identity.
func giveToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Identity-Header") != "header" {
		http.Error(w, "no header", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"token","expires_on":"%d","resource":"https://management.azure.com","token_type":"Bearer"}`,
		time.Now().Add(time.Hour).Unix())
}

// market is the data of the services.
func market() *pricing.Server {
	return &pricing.Server{Pages: pages.Pages{Seed: 1}, Offers: []pricing.Offer{
		{
			Size: "Standard_D2as_v5", Region: "westeurope", Spot: 0.02, Regular: 0.1, Eviction: "5-10", Cores: 2,
			History: []pricing.Point{{Date: "2026-11-01T00:00:00Z", USD: 0.02}, {Date: "2026-10-01T00:00:00Z", USD: 0.03}},
		},
		{Size: "Standard_D2as_v5", Region: "northeurope", Spot: 0.019, Regular: 0.1, Eviction: "20+", Cores: 2,
			History: []pricing.Point{{USD: 0.019}}},
		{Size: "Standard_D2s_v5", Region: "westeurope", Spot: 0.021, Regular: 0.11, Eviction: "0-5", Cores: 2,
			History: []pricing.Point{{USD: 0.021}}},
		{Size: "Standard_D4s_v5", Region: "westeurope", Spot: 0.05, Regular: 0.2, Eviction: "0-5", Cores: 4,
			History: []pricing.Point{{USD: 0.05}}},
		{Size: "Standard_B2s", Region: "westeurope", Regular: 0.04, Cores: 2, NoSpot: true},
	}}
}
