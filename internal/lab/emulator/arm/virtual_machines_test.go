package arm

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// names returns the names in a list of VMs.
func names(answer map[string]any) (names []string) {
	list, _ := answer["value"].([]any)
	for _, vm := range list {
		names = append(names, vm.(map[string]any)["name"].(string))
	}
	return names
}

// TestListsVMs: the list has all VMs that are resources, in the group or in the whole
// subscription, and none that is gone.
func TestListsVMs(t *testing.T) {
	b := setup(t)
	want := []string{"alone", "flex_1234abcd", "producer"}
	for _, path := range []string{compute, strings.ToUpper(compute), subscription + "/providers/Microsoft.Compute"} {
		got := names(b.call(http.MethodGet, path+"/virtualMachines"+version))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("VMs of %s = %v, want %v", path, got, want)
		}
	}
	b.metadata.RemoveVM("alone")
	if got := names(b.call(http.MethodGet, compute+"/virtualMachines"+version)); len(got) != 2 || slices.Contains(got, "alone") {
		t.Errorf("VMs after one is gone = %v, want the other two", got)
	}
}

// TestShortAndEmptyPages: with any seed the pages of a list have all of it, and lists of both
// kinds have pages without an item and with a link.
func TestShortAndEmptyPages(t *testing.T) {
	const address = "https://localhost:8443"
	further := imds.VM{Name: "further", Subscription: "11111111-1111-1111-1111-111111111111"}
	for path, want := range map[string]int{compute + "/virtualMachines": 3, "/subscriptions": 2} {
		empty := 0
		for seed := range uint64(20) {
			b := setup(t, func(o *Options) { o.PageSeed = seed + 1 })
			b.metadata.AddVM(further)
			got := 0
			for next := address + path + version; next != ""; {
				if !strings.HasPrefix(next, address+path+"?") || !strings.Contains(next, "api-version=") {
					t.Fatalf("link to the next page = %q, want the same list and version", next)
				}
				answer := b.call(http.MethodGet, strings.TrimPrefix(next, address))
				list, _ := answer["value"].([]any)
				if next, _ = answer["nextLink"].(string); next != "" && len(list) == 0 {
					empty++
				}
				got += len(list)
			}
			if got != want {
				t.Errorf("with seed %d the pages of %s have %d items, want %d", seed, path, got, want)
			}
		}
		if empty == 0 {
			t.Errorf("%s has no empty page, want some", path)
		}
	}
}

// TestShowsVM: a VM is shown with the fields that scripts choose by, and with its power
// state on request.
func TestShowsVM(t *testing.T) {
	b := setup(t)
	for path, want := range map[string]map[string]any{
		flexible: {"priority": "SpotPlus", "evictionPolicy": "Delete"},
		single:   {"priority": "Spot", "evictionPolicy": "Delete"},
		regular:  {"priority": "Regular", "evictionPolicy": nil},
	} {
		for query, power := range map[string]bool{"": false, "&$expand=instanceView": true, "&%24expand=instanceView,userData": true} {
			answer := b.call(http.MethodGet, path+version+query)
			properties, _ := answer["properties"].(map[string]any)
			if answer["id"] != path || !strings.HasSuffix(path, "/"+answer["name"].(string)) {
				t.Errorf("%s is shown as %v, named %v", path, answer["id"], answer["name"])
			}
			for name, value := range want {
				if properties[name] != value {
					t.Errorf("%s of %s = %v, want %v", name, path, properties[name], value)
				}
			}
			if _, has := properties["instanceView"]; has != power {
				t.Errorf("instance view of %s with %q: %t, want %t", path, query, has, power)
			}
		}
	}
	properties := b.call(http.MethodGet, flexible+version)["properties"].(map[string]any)
	if set := properties["virtualMachineScaleSet"].(map[string]any)["id"]; set != compute+"/virtualMachineScaleSets/flex" {
		t.Errorf("scale set of a Flexible VM = %v, want flex", set)
	}
}
