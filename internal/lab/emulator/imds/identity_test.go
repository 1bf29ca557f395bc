package imds

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	tokenQuery      = tokenPath + "?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com"
	appServiceQuery = appServicePath + "?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure.com"
)

// Three identities: the VM's own and two that were assigned to it.
var (
	own    = Identity{ClientID: "own", ObjectID: "own object"}
	first  = Identity{ClientID: "First", ObjectID: "first object", ResourceID: "/subscriptions/s/first"}
	second = Identity{ClientID: "second", ObjectID: "second object", ResourceID: "/subscriptions/s/second"}
)

// asAppService gives a request the guest's own header.
func asAppService(g *Guest) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("Metadata")
		r.Header.Set("X-IDENTITY-HEADER", g.secret)
	}
}

// fields reads a JSON object.
func fields(t *testing.T, r result) map[string]any {
	t.Helper()
	got := map[string]any{}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatalf("body %s: %v", r.body, err)
	}
	return got
}

func TestChoiceOfTheIdentity(t *testing.T) {
	tests := []struct {
		name       string
		identities []Identity
		query      string
		want       string // client id, empty for a refusal
	}{
		{"by client id", []Identity{own, first, second}, "client_id=second", "second"},
		{"by client id in another case", []Identity{first, second}, "client_id=FIRST", "First"},
		{"by object id", []Identity{own, first, second}, "object_id=first+object", "First"},
		{"by principal id", []Identity{own, first, second}, "principal_id=second+object", "second"},
		{"by resource id", []Identity{own, first, second}, "msi_res_id=/subscriptions/S/second", "second"},
		{"by resource id as App Service writes it", []Identity{own, first}, "mi_res_id=/subscriptions/s/first", "First"},
		{"the VM's own by client id", []Identity{first, own}, "client_id=own", "own"},
		{"none named, own among others", []Identity{first, own, second}, "", "own"},
		{"none named, only one", []Identity{first}, "", "First"},
		{"none named, several", []Identity{first, second}, "", ""},
		{"none named, none there", nil, "", ""},
		{"unknown client id", []Identity{own, first}, "client_id=third", ""},
		{"empty client id", []Identity{own, first}, "client_id=", ""},
		{"empty resource id", []Identity{own, first}, "msi_res_id=", ""},
		{"named twice", []Identity{own, first}, "client_id=First&object_id=first+object", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			query, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := chooseIdentity(tt.identities, query)
			if got.ClientID != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("chooseIdentity = %q, %v, want %q", got.ClientID, err, tt.want)
			}
			g := unlimited().AddVM(VM{Name: "a", Identities: tt.identities})
			status := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[tt.want != ""]
			if r := mustSend(t, g, http.MethodGet, tokenQuery+"&"+tt.query, ""); r.status != status {
				t.Errorf("the metadata service answered %d %s, want %d", r.status, r.body, status)
			}
			if r := mustSend(t, g, http.MethodGet, appServiceQuery+"&"+tt.query, "", asAppService(g)); r.status != status {
				t.Errorf("App Service answered %d %s, want %d", r.status, r.body, status)
			}
		})
	}
}

func TestErrorsOfTheIdentityEndpoint(t *testing.T) {
	g := unlimited().AddVM(VM{Name: "a", Identities: []Identity{own}})
	without := func(r *http.Request) { r.Header.Del("Metadata") }
	forwarded := func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.1") }
	none := func(*http.Request) {}
	const version = "?api-version=2018-02-01"
	tests := []struct {
		name, method, path string
		change             func(*http.Request)
		status             int
		code               string // of the body's "error", empty: not looked at
	}{
		{"a token", "GET", tokenQuery, none, 200, ""},
		{"for a GUID", "GET", tokenPath + version + "&resource=5b1fa3e3-5e2b-4c53-9ffd-9d0e5ba0c6f6", none, 200, ""},
		{"no Metadata header", "GET", tokenQuery, without, 400, "bad_request_102"},
		{"through a proxy", "GET", tokenQuery, forwarded, 400, ""},
		{"no resource", "GET", tokenPath + version, none, 400, "invalid_request"},
		{"no resource's name", "GET", tokenPath + version + "&resource=storage", none, 400, "invalid_resource"},
		{"unknown identity", "GET", tokenQuery + "&client_id=none", none, 400, "invalid_request"},
		{"no version", "GET", tokenPath + "?resource=https%3A%2F%2Fstorage.azure.com", none, 400, ""},
		{"a version of instance", "GET", strings.Replace(tokenQuery, "2018-02-01", "2021-02-01", 1), none, 404, ""},
		{"POST", "POST", tokenQuery, none, 405, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := mustSend(t, g, tt.method, tt.path, "", tt.change)
			if r.status != tt.status {
				t.Fatalf("status = %d (%s), want %d", r.status, r.body, tt.status)
			}
			if tt.code == "" {
				return
			}
			body := fields(t, r)
			if body["error"] != tt.code || body["error_description"] == "" {
				t.Errorf("body = %s, want error %q and a description", r.body, tt.code)
			}
		})
	}
}

func TestErrorsOfAppService(t *testing.T) {
	s := unlimited()
	g := s.AddVM(VM{Name: "a", Identities: []Identity{own}})
	other := s.AddVM(VM{Name: "b", Identities: []Identity{own}})
	with := asAppService(g)
	tests := []struct {
		name, method, path string
		change             func(*http.Request)
		status             int
	}{
		{"no header", "GET", appServiceQuery, func(r *http.Request) { r.Header.Del("X-IDENTITY-HEADER") }, 401},
		{"another VM's header", "GET", appServiceQuery, asAppService(other), 401},
		{"another version", "GET", strings.Replace(appServiceQuery, "2019-08-01", "2017-09-01", 1), with, 400},
		{"no resource", "GET", appServicePath + "?api-version=2019-08-01", with, 400},
		{"unknown identity", "GET", appServiceQuery + "&client_id=none", with, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := mustSend(t, g, tt.method, tt.path, "", tt.change)
			if body := fields(t, r); r.status != tt.status || body["statusCode"] != float64(tt.status) || body["message"] == "" {
				t.Errorf("answer = %d %s, want %d with statusCode and message", r.status, r.body, tt.status)
			}
		})
	}
	if r := mustSend(t, g, "POST", appServiceQuery, "", with); r.status != http.StatusMethodNotAllowed {
		t.Errorf("POST = %d, want 405", r.status)
	}
}

func TestTokensHaveALimitOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{}).AddVM(VM{Name: "a", Identities: []Identity{own}})
		ask := func(path string, n int, change ...func(*http.Request)) (accepted int) {
			for range n {
				switch r := mustSend(t, g, http.MethodGet, path, "", change...); r.status {
				case http.StatusOK:
					accepted++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("GET %s = %d %s", path, r.status, r.body)
				}
			}
			return accepted
		}
		if got := ask(tokenQuery, 25); got != 20 {
			t.Errorf("%d of 25 requests for tokens in a second were accepted, want 20", got)
		}
		if got := ask(computePath, 6); got != 5 {
			t.Errorf("%d of 6 other requests in the same second were accepted, want 5", got)
		}
		if got := ask(appServiceQuery, 30, asAppService(g)); got != 30 {
			t.Errorf("%d of 30 requests to App Service were accepted, want all: it is another service", got)
		}
		time.Sleep(time.Second)
		if got := ask(tokenQuery, 1); got != 1 {
			t.Errorf("a second later no token was given, want one")
		}
		got := g.Stats()
		got.Recent = nil
		want := Stats{Requests: 6, Throttled: 1, BusiestSecond: 6, TokenRequests: 56, TokensThrottled: 5}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}
