package scenario

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// with returns a scenario of one Spot VM, a, and these steps, from line 2 on.
func with(steps ...string) string {
	return `{"about":"x","service":{"preview":true},"vms":[{"name":"a"},{"name":"r","priority":"Regular"}],"steps":[` + "\n" +
		strings.Join(steps, ",\n") + "\n]}"
}

// reboot announces r1 at 1 s, which starts at 11 s.
const reboot = `{"at":"1s","announce":{"event":"r1","type":"Reboot","vms":["a"],"notice":"10s"}}`

// TestParseRefuses: each with its place and a text that names the fault.
func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, tt := range []struct{ text, want string }{
		// Texts that are no scenario at all.
		{``, "f:1:1: not JSON: it ends too early"},
		{"{\n  \"about\": \"x\",\n}", "f:3:1: not JSON: invalid character"},
		{`[]`, "f:1:1: a scenario is to be an object"},
		{`{"about":"x","vms":` + long + `}`, "f:1:40: more than 20 arrays"},
		{`{"vms":[{"name":"a"}]}`, `f:1:1: "about" is missing`},
		{`{"about":"x"}`, `f:1:1: "vms" is to list one VM`},
		{`{"about":"x","vms":[{"name":"a"}],"abuot":1}`, `f:1:35: unknown field "abuot"; known here: about, service, vms`},
		{`{"about":"x","vms":[{"name":"a"}],"then":"stop"}`, `f:1:42: "then" is to be one of stay, end, repeat`},
		{`{"about":"x","vms":[{"name":"a"}],"then":"repeat"}`, `f:1:1: "then" is repeat, but`},
		{`{"about":"x","vms":[{"name":"a"}],"steps":[{"at":"9s","note":"n"}],"length":"5s"}`, `f:1:77: "length" is 5s, want 9s to`},
		{`{"about":"x","vms":[{"name":"a"}],"service":{"requests_per_second":1.5}}`,
			`f:1:68: "requests_per_second" is to be a whole number from -1 to 1000`},

		// VMs.
		{`{"about":"x","vms":[{"name":"a"},{"name":"A"}]}`, `f:1:34: there are two VMs A`},
		{`{"about":"x","vms":[{"name":"a/b"}]}`, `f:1:21: "a/b" is no name`},
		{`{"about":"x","vms":[{"name":"a","vm_id":"7"}]}`, `f:1:41: "vm_id" is to be a GUID`},
		{`{"about":"x","vms":[{"name":"a","priority":"Regular","eviction_policy":"Delete"}]}`, `f:1:72: a Regular VM is not evicted`},
		{`{"about":"x","vms":[{"name":"a","identities":[{"id":"x"}]}]}`,
			`f:1:48: unknown field "id"; known here: client_id, object_id, resource_id`},

		// Steps.
		{with(`{"note":"n"}`), `f:2:1: "at" is missing`},
		{with(`{"at":"1s"}`), `f:2:1: the step does nothing; it can announce, simulate_eviction,`},
		{with(`{"at":"1s","note":"n","start":"x"}`), `f:2:19: a step is one thing only`},
		{with(`{"at":"2s","note":"n"}`, `{"at":"1s","note":"n"}`), `f:3:1: this step is at 1s, before the one above it`},
		{with(`{"at":"1s","announce":{"vms":["a"]}}`), `f:2:23: "type" is missing`},
		{with(`{"at":"1s","announce":{"type":"Prempt","vms":["a"]}}`), `f:2:31: "type" is to be one of Preempt, Terminate`},
		{with(`{"at":"1s","announce":{"type":"Reboot","vms":["b"]}}`), `f:2:47: there is no VM b at that time; there are a, r`},
		{with(`{"at":"1s","announce":{"type":"Reboot","vms":["a"],"duration":"1500ms"}}`), `f:2:63: a duration is in whole seconds`},
		{with(`{"at":"1s","announce":{"type":"Reboot","vms":["a"],"status":"Started","notice":"1s"}}`),
			`f:2:80: an event that is Started from the outset has no notice`},
		{with(`{"at":"1s","announce":{"type":"Preempt","vms":["a"],"duration":"1s"}}`), `f:2:64: an eviction has no duration`},
		{with(`{"at":"1s","announce":{"type":"Preempt","vms":["r"]}}`), `f:2:48: VM r has priority Regular, only Spot VMs are evicted`},
		{with(`{"at":"1s","announce":{"type":"Terminate","vms":["a"]}}`),
			`f:2:50: VM a has priority Spot; termination is announced to Regular VMs only`},
		{with(`{"at":"1s","announce":{"type":"SpotRebalanceRecommendation","vms":["a"],"status":"Started"}}`),
			`f:2:82: "status" is to be one of Advisory`},
		{with(`{"at":"1s","announce":{"type":"SpotRebalanceRecommendation","vms":["a"],"completes_after":"1s"}}`),
			`f:2:91: an advice has no start`},
		{strings.Replace(with(`{"at":"1s","announce":{"type":"SpotRebalanceRecommendation","vms":["a"]}}`), "true", "false", 1),
			`f:2:1: an advice is shown in the preview version only`},
		{with(`{"at":"1s","simulate_eviction":{"vm":"r"}}`), `f:2:38: VM r has priority Regular`},
		{with(reboot, `{"at":"1s","announce":{"event":"r1","type":"Reboot","vms":["a"]}}`), `f:3:32: there is an event r1 already`},
		{with(`{"at":"1s","start":"r1"}`), `f:2:20: no event r1 was announced before`},
		{with(reboot, `{"at":"11s","start":"r1"}`), `f:3:21: event r1 has started by then and cannot be started`},
		{with(reboot, `{"at":"11s","move":{"event":"r1","notice":"1s"}}`), `f:3:29: event r1 has started by then and cannot be moved`},
		{with(reboot, `{"at":"2s","move":{"event":"r1"}}`), `f:3:19: "notice" is missing`},
		{with(reboot, `{"at":"2s","move":{"event":"r1","notice":"20s"}}`, `{"at":"21s","impact":{"event":"r1","for":"1s"}}`),
			`f:4:31: event r1 has not started by then, so there is no impact`},
		{with(reboot, `{"at":"10s","complete":"r1"}`), `f:3:24: event r1 has not started by then: withdraw it`},
		{with(reboot, `{"at":"11s","complete":"r1"}`, `{"at":"12s","complete":"r1"}`), `f:4:24: event r1 is not listed any more`},
		{with(strings.Replace(reboot, `"10s"`, `"10s","completes_after":"5s"`, 1), `{"at":"16s","impact":{"event":"r1","for":"1s"}}`),
			`f:3:31: event r1 is not listed any more`},
		{with(`{"at":"1s","add_vm":{"name":"A"}}`), `f:2:1: VM A is there already`},
		{with(`{"at":"1s","remove_vm":"a"}`, `{"at":"2s","simulate_eviction":{"vm":"a"}}`), `f:3:38: there is no VM a at that time; there are r`},

		// Faults.
		{with(`{"at":"1s","fault":{"status":500}}`), `f:2:20: "for" is missing`},
		{with(`{"at":"1s","fault":{"for":"1s"}}`), `f:2:20: nothing fails`},
		{with(`{"at":"1s","fault":{"for":"1s","status":200}}`), `f:2:41: "status" is to be a whole number from 300 to 599`},
		{with(`{"at":"1s","fault":{"for":"1s","hang":true,"close":true}}`), `f:2:20: a fault is one of`},
		{with(`{"at":"1s","fault":{"for":"1s","status":500,"location":"x"}}`), `f:2:20: "location" is for a "status" of 300 to 399`},
		{with(`{"at":"1s","fault":{"for":"1s","limit":1,"vms":["a"]}}`), `f:2:20: "limit" holds for every VM`},
		{with(`{"at":"1s","fault":{"for":"1s","hang":true,"on":"disks"}}`), `f:2:49: "on" is to be one of all, events`},
	} {
		_, err := Parse("f", []byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("Parse of\n%s\n= %v, want %s...", tt.text, err, tt.want)
		}
	}
}

func TestParseReadsEveryField(t *testing.T) {
	const guid1, guid2 = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	s, err := Parse("f", []byte(`{"about":"all of it","clock":"start","length":"1h","then":"repeat",
		"service":{"first_call_delay":"2m","requests_per_second":-1,"preview":true,"token_life":"1h"},
		"vms":[{"name":"set_1","scale_set":"set","vm_id":"`+guid1+`","priority":"SpotPlus","eviction_policy":"Deallocate",
		"location":"westus","zone":"2","size":"Standard_D4s_v5","resource_group":"g","subscription":"`+guid2+`","tags":{"k":"v"},
		"user_data":"aGk=","identities":[{"client_id":"`+guid1+`","object_id":"`+guid2+`","resource_id":"/r"}]}],
		"steps":[{"at":"1s","announce":{"event":"e","id":"`+guid1+`","other_type":"X","vms":["SET_1"],"notice":"1m","status":"Scheduled",
		"source":"User","description":"d","duration":"9s","completes_after":"3s"}},
		{"at":"2s","fault":{"delay":"1s","hold":"2s","status":302,"location":"l","body":"b","body_size":3,
"for":"4s","on":"tokens","every":2,"vms":["set_1"],"versions":["v"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Scenario{
		About: "all of it", Length: time.Hour, Then: Repeat,
		Service: imds.Options{FirstCallDelay: 2 * time.Minute, RequestsPerSecond: -1, PreviewEvents: true, TokenLife: time.Hour},
		VMs: []imds.VM{{
			Name: "set_1", ScaleSet: "set", VMID: guid1, Priority: "SpotPlus", EvictionPolicy: "Deallocate", Location: "westus", Zone: "2",
			Size: "Standard_D4s_v5", ResourceGroup: "g", Subscription: guid2, Tags: map[string]string{"k": "v"}, UserData: "aGk=",
			Identities: []imds.Identity{{ClientID: guid1, ObjectID: guid2, ResourceID: "/r"}},
		}},
		steps: []step{
			{in: time.Second, action: announce{
				name: place{text: "e"}, vms: []place{{text: "SET_1"}}, notice: time.Minute, lasts: 3 * time.Second,
				event: imds.Event{ID: guid1, Type: "X", Status: "Scheduled", Source: "User", Description: "d", Duration: 9 * time.Second},
			}},
			{in: 2 * time.Second, action: requestFault{
				Fault: imds.Fault{Delay: time.Second, Hold: 2 * time.Second, Status: 302, Location: "l", Body: []byte("b  ")},
				lasts: 4 * time.Second, on: "tokens", every: 2, vms: []place{{text: "set_1"}}, versions: []string{"v"},
			}},
		},
	}
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(Scenario{}, step{}, announce{}, requestFault{}, place{}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".at" }, cmp.Ignore())); diff != "" {
		t.Errorf("scenario (-want +got):\n%s", diff)
	}
}

// TestVMsKeepTheirIDs: fields that are not given are the same in every run.
func TestVMsKeepTheirIDs(t *testing.T) {
	text := []byte(`{"about":"x","vms":[{"name":"a","identities":[{}]},{"name":"b"}]}`)
	first, err := Parse("f", text)
	second, again := Parse("f", text)
	if err != nil || again != nil {
		t.Fatal(err, again)
	}
	if diff := cmp.Diff(first.VMs, second.VMs); diff != "" {
		t.Errorf("VMs of a second reading (-first +second):\n%s", diff)
	}
	if a := first.VMs[0]; a.VMID == first.VMs[1].VMID || a.Identities[0].ClientID == a.Identities[0].ObjectID {
		t.Errorf("VMs = %+v, want ids of their own", first.VMs)
	}
}

// FuzzParse looks for files that crash the reader, or whose error points nowhere.
func FuzzParse(f *testing.F) {
	for _, name := range Ready() {
		text, _ := ReadyText(name)
		f.Add(text)
	}
	f.Add([]byte(with(reboot)))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Parse("f", text)
		if err == nil {
			if !json.Valid(text) {
				t.Errorf("%q is no JSON and passed", text)
			}
			return
		}
		e, ok := errors.AsType[*jsonpos.Error](err)
		if !ok || e.Offset < 0 || e.Offset > len(text) || e.Problem == "" {
			t.Fatalf("Parse = %#v, want an error with a position in the file", err)
		}
	})
}
