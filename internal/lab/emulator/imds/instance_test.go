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

func TestInstanceDefaults(t *testing.T) {
	for _, tt := range []struct {
		vm       VM
		policy   string
		resource string
	}{
		{VM{Name: "a"}, "Delete", "virtualMachines/a"},
		{VM{Name: "a", Priority: "Regular"}, "", "virtualMachines/a"},
		{VM{Name: "a", EvictionPolicy: "Deallocate"}, "Deallocate", "virtualMachines/a"},
		{VM{Name: "set_12", ScaleSet: "set"}, "Delete", "virtualMachineScaleSets/set/virtualMachines/12"},
		{VM{Name: "set_1a2b3c4d", ScaleSet: "set"}, "Delete", "virtualMachines/set_1a2b3c4d"},
		{VM{Name: "set_12345678", ScaleSet: "set"}, "Delete", "virtualMachines/set_12345678"},
	} {
		vm := tt.vm.withDefaults()
		if vm.EvictionPolicy != tt.policy {
			t.Errorf("eviction policy of %+v = %q, want %q", tt.vm, vm.EvictionPolicy, tt.policy)
		}
		want := "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Compute/" + tt.resource
		if got := vm.ResourceID(); got != want {
			t.Errorf("resource id of %+v = %s, want %s", tt.vm, got, want)
		}
		if len(vm.VMID) != 36 {
			t.Errorf("vm id = %q, want a GUID", vm.VMID)
		}
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

func TestRemovedVMGetsNoService(t *testing.T) {
	s := unlimited()
	vm := s.AddVM(VM{Name: "set_0", ScaleSet: "set"})
	neighbour := s.AddVM(VM{Name: "set_1", ScaleSet: "set"})
	id, err := s.SimulateEviction("set_0")
	if err != nil {
		t.Fatal(err)
	}
	s.RemoveVM("set_0")
	if r := mustSend(t, vm, "GET", eventsPath, ""); r.status != 404 {
		t.Errorf("status for a removed VM = %d, want 404", r.status)
	}
	if _, sees := document(t, neighbour).statuses()[id]; !sees {
		t.Error("the neighbour no longer sees the eviction, want it until it is completed")
	}
	if _, err := s.SimulateEviction("set_0"); err == nil {
		t.Error("a removed VM was evicted again")
	}
	s.AddVM(VM{Name: "set_0", ScaleSet: "set"})
	if got := document(t, vm).Events[0].EventID; got != id {
		t.Errorf("event of the VM that came back = %s, want %s", got, id)
	}
	if requests := vm.Stats().Requests; requests != 2 {
		t.Errorf("requests = %d, want 2: counters outlive the VM", requests)
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
