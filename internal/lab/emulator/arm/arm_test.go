package arm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	subscription = "/subscriptions/00000000-0000-0000-0000-000000000000"
	compute      = subscription + "/resourceGroups/rg/providers/Microsoft.Compute"
	version      = "?api-version=2020-06-01"

	// Each kind of VM that the tests' server has.
	uniform  = compute + "/virtualMachineScaleSets/spot/virtualMachines/3"
	flexible = compute + "/virtualMachines/flex_1234abcd"
	single   = compute + "/virtualMachines/alone"
	regular  = compute + "/virtualMachines/producer"
)

// bundle is a resource manager, its metadata service, and a token for it.
type bundle struct {
	*Server
	t        *testing.T
	metadata *imds.Server
	token    string
}

func setup(t *testing.T, change ...func(*Options)) *bundle {
	t.Helper()
	metadata := imds.New(imds.Options{})
	for _, vm := range []imds.VM{
		{Name: "spot_3", ScaleSet: "spot"}, {Name: "flex_1234abcd", ScaleSet: "flex", Priority: "SpotPlus"},
		{Name: "alone"}, {Name: "producer", Priority: "Regular"},
	} {
		metadata.AddVM(vm)
	}
	options := Options{Metadata: metadata, EvictionDelay: -1}
	for _, f := range change {
		f(&options)
	}
	b := &bundle{Server: New(options), t: t, metadata: metadata}
	t.Cleanup(b.Close)
	b.token = b.signIn(b.form(nil))["access_token"].(string)
	return b
}

// form is a sign-in that is accepted, with changes; an empty value deletes.
func (*bundle) form(change map[string]string) url.Values {
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {uuid.NewString()}, "client_secret": {"any"},
		"scope": {"openid https://management.localhost//.default"},
	}
	for name, value := range change {
		if form.Set(name, value); value == "" {
			form.Del(name)
		}
	}
	return form
}

// signIn posts a form to the authority and returns its answer, with the status
// under "status".
func (b *bundle) signIn(form url.Values) map[string]any {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "https://localhost:8443/adfs/oauth2/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.answer(r)
}

// call sends a call with the token of the bundle, and returns the answer as
// signIn does.
func (b *bundle) call(method, path string) map[string]any {
	b.t.Helper()
	r := httptest.NewRequest(method, "https://localhost:8443"+path, nil)
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.answer(r)
}

func (b *bundle) answer(r *http.Request) map[string]any {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	answer := map[string]any{}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			b.t.Fatalf("%s %s answers %q: %v", r.Method, r.URL.Path, w.Body, err)
		}
	}
	answer["status"] = w.Code
	return answer
}

// preempts counts the Preempts that a VM's metadata service shows.
func (b *bundle) preempts(vm string) int {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metadata/scheduledevents?api-version=2020-07-01", nil)
	r.Header.Set("Metadata", "true")
	w := httptest.NewRecorder()
	b.metadata.VM(vm).Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		b.t.Fatalf("scheduled events of %s: status %d, %s", vm, w.Code, w.Body)
	}
	return strings.Count(w.Body.String(), `"Preempt"`)
}
