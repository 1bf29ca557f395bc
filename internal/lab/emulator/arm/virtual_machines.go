package arm

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// listPath is the list of VMs of a subscription, or of a resource group of it. Its groups
// are the subscription and the resource group.
var listPath = regexp.MustCompile(`(?i)^/subscriptions/([^/]+)(?:/resourceGroups/([^/]+))?` +
	`/providers/Microsoft\.Compute/virtualMachines/?$`)

// firstReadVersion is the api-version that introduced the priority of VMs.
const firstReadVersion = "2019-03-01"

// list answers with the VMs of a subscription or of a resource group. Instances of Uniform
// scale sets are not among them: they are no VMs of their own.
func (s *Server) list(w http.ResponseWriter, r *http.Request, subscription, group string) {
	if no := checkVersion(r.URL.Query().Get("api-version"), firstReadVersion, "the priority of VMs"); no != nil {
		no.write(w)
		return
	}
	knownSubscription, knownGroup := false, group == ""
	list := []any{}
	for _, vm := range s.options.Metadata.VMs() {
		if !strings.EqualFold(vm.Subscription, subscription) {
			continue
		}
		knownSubscription = true
		if group != "" && !strings.EqualFold(vm.ResourceGroup, group) {
			continue
		}
		knownGroup = true
		if isResource(vm) {
			list = append(list, model(vm, false))
		}
	}
	switch {
	case !knownSubscription:
		refuse(http.StatusNotFound, "SubscriptionNotFound", "there is no subscription %s", subscription).write(w)
	case !knownGroup:
		refuse(http.StatusNotFound, "ResourceGroupNotFound", "there is no resource group %s", group).write(w)
	default:
		s.writePage(w, r, list)
	}
}

// show answers with one VM.
func (s *Server) show(w http.ResponseWriter, r *http.Request, vm imds.VM) {
	setRequestID(w)
	writeJSON(w, http.StatusOK, model(vm, strings.Contains(strings.ToLower(r.URL.Query().Get("$expand")), "instanceview")))
}

// isResource reports whether a VM is a resource of its own, and no child of a scale set.
func isResource(vm imds.VM) bool {
	return !strings.Contains(vm.ResourceID(), "/virtualMachineScaleSets/")
}

// model is a VM as the resource manager shows it. It has no network interfaces.
func model(vm imds.VM, instanceView bool) map[string]any {
	properties := map[string]any{
		"vmId": vm.VMID, "provisioningState": "Succeeded", "priority": vm.Priority,
		"hardwareProfile": map[string]any{"vmSize": vm.Size},
		"networkProfile":  map[string]any{"networkInterfaces": []any{}},
	}
	if vm.Evictable() {
		properties["evictionPolicy"] = vm.EvictionPolicy
		properties["billingProfile"] = map[string]any{"maxPrice": -1.0}
	}
	if vm.ScaleSet != "" {
		id := vm.ResourceID()
		set := id[:strings.LastIndex(id, "/virtualMachines/")] + "/virtualMachineScaleSets/" + vm.ScaleSet
		properties["virtualMachineScaleSet"] = map[string]any{"id": set}
	}
	if instanceView {
		// A VM that is gone is not listed, and none is stopped.
		properties["instanceView"] = map[string]any{"statuses": []any{
			map[string]any{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"},
			map[string]any{"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"},
		}}
	}
	resource := map[string]any{
		"id": vm.ResourceID(), "name": vm.Name, "type": "Microsoft.Compute/virtualMachines",
		"location": vm.Location, "tags": vm.Tags, "properties": properties,
	}
	if vm.Zone != "" {
		resource["zones"] = []any{vm.Zone}
	}
	return resource
}
