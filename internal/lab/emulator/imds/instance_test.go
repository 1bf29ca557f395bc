package imds

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func decode(t *testing.T, body string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
}

func TestInstanceDocument(t *testing.T) {
	vm := unlimited().AddVM(VM{
		Name: "set_7", VMID: "5c08b38e-4d57-4c23-ac45-aca61037f084", ScaleSet: "set", Zone: "2",
		Tags: map[string]string{"team": "a b", "env": "test"}, UserData: "aGk=",
	})
	var got map[string]any
	decode(t, mustSend(t, vm, "GET", computePath, "").body, &got)
	want := map[string]any{
		"name":           "set_7",
		"vmId":           "5c08b38e-4d57-4c23-ac45-aca61037f084",
		"vmScaleSetName": "set",
		"location":       "westeurope",
		"zone":           "2",
		"priority":       "Spot",
		"evictionPolicy": "Delete",
		"tags":           "env:test;team:a b",
		"tagsList": []any{
			map[string]any{"name": "env", "value": "test"},
			map[string]any{"name": "team", "value": "a b"},
		},
		"userData": "aGk=",
		"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg" +
			"/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/7",
	}
	for field, value := range want {
		if diff := cmp.Diff(value, got[field]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}

	var whole struct{ Compute map[string]any }
	decode(t, mustSend(t, vm, "GET", "/metadata/instance?api-version=2021-02-01", "").body, &whole)
	if diff := cmp.Diff(got, whole.Compute); diff != "" {
		t.Errorf("compute within the whole instance (-alone +within):\n%s", diff)
	}
}

func TestInstanceElements(t *testing.T) {
	vm := unlimited().AddVM(VM{Name: "a", Tags: map[string]string{"k": "v"}})
	for _, tt := range []struct {
		path   string
		status int
		body   string // looked at if not empty
	}{
		{"/compute/name?format=text&", 200, "a"},
		{"/compute/tagsList?", 200, `[{"name":"k","value":"v"}]`},
		{"/compute/tagsList/0?format=json&", 200, `{"name":"k","value":"v"}`},
		{"/compute/tagsList/0/value?format=text&", 200, "v"},
		{"/compute/name?", 400, ""},
		{"/compute/name?format=json&", 400, ""},
		{"/compute?format=text&", 400, ""},
		{"/compute?format=xml&", 400, ""},
		{"/compute/none?", 404, ""},
		{"/compute/name/deeper?", 404, ""},
		{"/compute/tagsList/1?", 404, ""},
		{"/compute/tagsList/x?", 404, ""},
		{"/network?", 404, ""},
	} {
		r := mustSend(t, vm, "GET", "/metadata/instance"+tt.path+"api-version=2021-02-01", "")
		if r.status != tt.status {
			t.Errorf("status of %s = %d, want %d", tt.path, r.status, tt.status)
		}
		if tt.body != "" && r.body != tt.body {
			t.Errorf("body of %s = %s, want %s", tt.path, r.body, tt.body)
		}
	}
}

func TestAddVMRefusesNamesThatNoVMHas(t *testing.T) {
	for _, name := range []string{"", "a/b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("AddVM(%q) did not panic", name)
				}
			}()
			New(Options{}).AddVM(VM{Name: name})
		}()
	}
}

// TestVMs lists the existing VMs, with defaults for the fields not given.
func TestVMs(t *testing.T) {
	s := unlimited()
	for _, name := range []string{"b", "A", "gone"} {
		s.AddVM(VM{Name: name})
	}
	s.VM("never")
	s.RemoveVM("gone")
	var names []string
	for _, vm := range s.VMs() {
		names = append(names, vm.Name)
		if !strings.HasSuffix(vm.ResourceID(), "/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/"+vm.Name) || !vm.Evictable() {
			t.Errorf("VM %+v has resource id %s, want it evictable and in group rg", vm, vm.ResourceID())
		}
	}
	if got := strings.Join(names, " "); got != "A b" {
		t.Errorf("VMs = %q, want A b", got)
	}
}
