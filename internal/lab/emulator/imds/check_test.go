package imds

import (
	"encoding/json"
	"net/http"
	"testing"
)

func TestErrorsOfTheService(t *testing.T) {
	without := func(r *http.Request) { r.Header.Del("Metadata") }
	wrong := func(r *http.Request) { r.Header.Set("Metadata", "yes") }
	forwarded := func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.1") }
	none := func(*http.Request) {}

	tests := []struct {
		name   string
		method string
		path   string
		change func(*http.Request)
		want   int
	}{
		{"events", "GET", eventsPath, none, 200},
		{"instance", "GET", computePath, none, 200},
		{"versions need no version", "GET", "/metadata/versions", none, 200},

		{"no Metadata header", "GET", eventsPath, without, 400},
		{"Metadata is not true", "GET", eventsPath, wrong, 400},
		{"no Metadata header on POST", "POST", eventsPath, without, 400},
		{"no Metadata header on versions", "GET", "/metadata/versions", without, 400},
		{"came through a proxy", "GET", eventsPath, forwarded, 400},
		{"instance through a proxy", "GET", computePath, forwarded, 400},

		{"events without version", "GET", "/metadata/scheduledevents", none, 400},
		{"events, version is no date", "GET", "/metadata/scheduledevents?api-version=latest", none, 400},
		{"events, version not served", "GET", "/metadata/scheduledevents?api-version=2024-07-09", none, 404},
		{"events, version of instance", "GET", "/metadata/scheduledevents?api-version=2021-02-01", none, 404},
		{"instance without version", "GET", "/metadata/instance/compute", none, 400},
		{"instance, version of events", "GET", "/metadata/instance/compute?api-version=2020-07-01", none, 404},
		{"version twice", "GET", eventsPath + "&api-version=2020-07-01", none, 400},

		{"no such path", "GET", "/metadata/nothing?api-version=2020-07-01", none, 404},
		{"path below events", "GET", "/metadata/scheduledevents/1?api-version=2020-07-01", none, 404},
		{"root without version", "GET", "/metadata", none, 400},

		{"DELETE events", "DELETE", eventsPath, none, 405},
		{"POST instance", "POST", computePath, none, 405},
		{"POST versions", "POST", "/metadata/versions", none, 405},
	}
	vm := unlimited().AddVM(VM{Name: "a"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := mustSend(t, vm, tt.method, tt.path, "", tt.change)
			if r.status != tt.want {
				t.Fatalf("status = %d (%s), want %d", r.status, r.body, tt.want)
			}
			var body struct{ Error string }
			if err := json.Unmarshal([]byte(r.body), &body); err != nil {
				t.Fatalf("body %s: %v", r.body, err)
			}
			if failed := tt.want != 200; failed != (body.Error != "") {
				t.Errorf("body = %s, want an error text: %t", r.body, failed)
			}
			if allow := r.header.Get("Allow"); (tt.want == 405) != (allow != "") {
				t.Errorf("Allow = %q with status %d", allow, r.status)
			}
		})
	}
}
