package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// answers are the results of commands as Azure's interfaces have them. Beside the entries
// that a script looks for stand entries that its query must leave out.
var answers = map[string]func(azCall) (any, error){
	"account show": func(c azCall) (any, error) {
		if c.has("signed-out") {
			return nil, errSilent
		}
		return object{"name": "Some", "id": "1234", "tenantId": "5678", "user": object{"name": "me@example.com", "type": "user"}}, nil
	},
	"version": func(c azCall) (any, error) {
		return object{"azure-cli": c.read("version"), "azure-cli-core": "0.0.1"}, nil
	},
	"bicep version": func(c azCall) (any, error) { return rawText(c.read("bicep") + "\n"), nil },
	"group exists":  func(c azCall) (any, error) { return c.read("group") == "true", nil },
	"group show": func(c azCall) (any, error) {
		return object{"location": c.read("grouplocation"), "name": "spotworker"}, nil
	},
	"group create":  made,
	"provider list": listProviders,

	"vm list-skus":         listSKUs,
	"vm list-usage":        listUsage,
	"vm list":              listVMs,
	"vm simulate-eviction": nothing,
	"vmss list":            listScaleSets,
	"vmss scale":           nothing,

	"monitor autoscale list": func(c azCall) (any, error) {
		return []any{object{"name": "other-spot"}, object{"name": cmpOr(c.read("autoscale"), "spotworker-spot")}}, nil
	},
	"monitor autoscale delete": nothing,
	"network vnet subnet show": func(c azCall) (any, error) {
		return object{"id": regionSubnet(c.options["--resource-group"])}, nil
	},
	"ad signed-in-user show": func(azCall) (any, error) { return object{"id": "00000000-0000-0000-0000-000000000001"}, nil },

	"deployment group list":   listDeployments,
	"deployment group show":   showDeployment,
	"deployment group create": deploy,
	"deployment group what-if": func(c azCall) (any, error) {
		if strings.Contains(c.options["--parameters"], "stage=Workers") && c.has("later") {
			return nil, os.Rename(c.path("later"), c.path("capacity"))
		}
		if c.has("exchanged.tar.gz") {
			return nil, os.Rename(c.path("exchanged.tar.gz"), c.path("package.tar.gz"))
		}
		_, err := deploy(c)
		return nil, err
	},

	"storage account show":             showAccount,
	"storage account list":             listAccounts,
	"storage account network-rule add": nothing,
	"rest":                             getResource,
	"resource delete":                  nothing,
	"storage blob list":                listBlobs,
	"storage blob upload":              uploadBlob,

	"role assignment list":   listRoles,
	"role assignment delete": nothing,
}

// made is the answer about a new resource, which nobody reads.
func made(azCall) (any, error) {
	return object{"properties": object{"provisioningState": "Succeeded"}}, nil
}

func nothing(azCall) (any, error) { return nil, nil }

func listProviders(c azCall) (any, error) {
	var list []any
	for _, name := range c.lines("providers") {
		list = append(list, object{"namespace": name, "registrationState": "Registered"})
	}
	for _, name := range []string{"Microsoft.AzureFleet", "Microsoft.Batch"} {
		if !slices.Contains(c.lines("providers"), name) {
			list = append(list, object{"namespace": name, "registrationState": "NotRegistered"})
		}
	}
	return list, nil
}

// vmSize is one size of VMs in one region.
type vmSize struct {
	Name, Spot, Processor, Cores string
	Interfaces                   string   // DiskControllerTypes; empty for a size that does not say
	Temporary, NVMe              string   // MaxResourceVolumeMB, NvmeDiskSizeInMiB
	Generations                  string   // HyperVGenerations
	NoTrustedLaunch              string   // TrustedLaunchDisabled
	Premium, Family              string   // PremiumIO, and the family of the quota
	Zones, Without               []string // where it is, and where the subscription may not have it
	Restricted                   bool     // in the whole region
}

// usualSize returns a size that meets every demand.
func usualSize(name string) vmSize {
	return vmSize{Name: name, Spot: "True", Processor: "x64", Cores: "2", Interfaces: "SCSI", Temporary: "0", Generations: "V1,V2",
		Premium: "True", Family: usualFamily,
		Zones: []string{"3", "1", "2"}}
}

// sizes notes the sizes that the region has.
func (a *subscription) sizes(list ...vmSize) {
	a.t.Helper()
	encoded, err := json.Marshal(list)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write("sizes", string(encoded), 0o600)
}

// listSKUs leaves restricted sizes out unless it is asked for --all.
func listSKUs(c azCall) (any, error) {
	if c.options["--location"] == "" || c.options["--resource-type"] != "virtualMachines" {
		return nil, errors.New("the stand-in for az lists VMs of one region only")
	}
	var sizes []vmSize
	if err := json.Unmarshal([]byte(c.read("sizes")), &sizes); err != nil {
		return nil, err
	}
	_, all := c.options["--all"]
	list := []any{}
	for _, s := range sizes {
		restrictions := []any{}
		where := object{"locations": []any{c.options["--location"]}}
		if s.Restricted {
			restrictions = append(restrictions, object{"type": "Location", "reasonCode": "NotAvailableForSubscription", "restrictionInfo": where})
		}
		if len(s.Without) > 0 {
			zoned := object{"locations": []any{c.options["--location"]}, "zones": s.Without}
			restrictions = append(restrictions, object{"type": "Zone", "reasonCode": "NotAvailableForSubscription", "restrictionInfo": zoned})
		}
		if len(restrictions) > 0 && !all {
			continue
		}
		capabilities := []any{}
		for name, v := range map[string]string{
			"LowPriorityCapable": s.Spot, "CpuArchitectureType": s.Processor, "vCPUs": s.Cores, "DiskControllerTypes": s.Interfaces,
			"MaxResourceVolumeMB": s.Temporary, "NvmeDiskSizeInMiB": s.NVMe, "HyperVGenerations": s.Generations,
			"TrustedLaunchDisabled": s.NoTrustedLaunch, "PremiumIO": s.Premium,
		} {
			if v != "" {
				capabilities = append(capabilities, object{"name": name, "value": v})
			}
		}
		zones := s.Zones
		if zones == nil {
			zones = []string{}
		}
		list = append(list, object{
			"name": s.Name, "family": s.Family, "resourceType": "virtualMachines", "capabilities": capabilities, "restrictions": restrictions,
			"locationInfo": []any{object{"location": c.options["--location"], "zones": zones}},
		})
	}
	return list, nil
}

const usualFamily, otherFamily = "standardDASv5Family", "standardDSv5Family"

// listUsage has the quotas of Spot cores, regular cores and families, as "used limit".
func listUsage(c azCall) (any, error) {
	list := []any{object{"name": object{"value": "standardEASv5Family"}, "currentValue": "0", "limit": "100000"}}
	for _, quota := range []struct{ note, name string }{{"regular", "cores"}, {"usage", "lowPriorityCores"}, {"family", usualFamily},
		{"otherfamily", otherFamily}} {
		words := c.lines(quota.note)
		if len(words) != 2 {
			continue
		}
		list = append(list, object{"name": object{"value": quota.name}, "currentValue": words[0], "limit": words[1]})
	}
	return list, nil
}

// listVMs has the noted VM, if any, behind VMs that nobody may evict.
func listVMs(c azCall) (any, error) {
	for i := range 4 {
		if c.take(fmt.Sprint("gone", i)) {
			return nil, errors.New("(ResourceNotFound) a VM was not found")
		}
	}
	list := []any{}
	vm := func(name, priority, state string) {
		entry := object{"name": name, "priority": priority, "provisioningState": "Succeeded"}
		if _, details := c.options["--show-details"]; details {
			entry["powerState"] = "VM " + state
		}
		list = append(list, entry)
	}
	prefix := "spotworker"
	if name := c.read("vm"); name != "" {
		prefix = name[:strings.LastIndex(name, "-")]
	}
	for i := range len(c.lines("machines")) {
		vm(c.lines("machines")[i], "Spot", "running")
	}
	vm(prefix+"-ondemand_00000000", "Regular", "running")
	vm(prefix+"-spot_00000000", "Spot", "deallocated") // regionVM
	vm("other-spot_00000000", "Spot", "running")
	if name := c.read("vm"); name != "" {
		vm(name, cmpOr(c.read("vmpriority"), "Spot"), "running")
	}
	return list, nil
}

func cmpOr(first, second string) string {
	if first != "" {
		return first
	}
	return second
}

// listScaleSets has the set of Spot VMs, where there is one, and the set of another prefix.
func listScaleSets(c azCall) (any, error) {
	if c.has("throttled") {
		return nil, errors.New("(TooManyRequests)")
	}
	if c.options["--resource-group"] == "" {
		return listRegions(c), nil
	}
	set := func(name string, capacity any, packageID string) object {
		return object{"name": name, "sku": object{"capacity": capacity}, "virtualMachineProfile": object{
			"applicationProfile": object{"galleryApplications": []any{object{"packageReferenceId": packageID}}}}}
	}
	list := []any{set("other-spot", 77, "/subscriptions/1234/versions/7.7.7")}
	if n := c.read("ondemandcapacity"); n != "" {
		list = append(list, set("spotworker-ondemand", json.Number(n), "/subscriptions/1234/versions/7.7.8"))
	}
	if n := c.read("capacity"); n != "" || c.read("deployed") != "" {
		list = append(list, set("spotworker-spot", json.Number(cmpOr(n, "1")), c.read("deployed")))
	}
	return list, nil
}

// listDeployments has the last deployment and a deployment of another prefix.
func listDeployments(c azCall) (any, error) {
	list := []any{object{"name": "other-deploy", "properties": object{"parameters": object{
		"location": object{"value": "otherregion"}, "applicationVersion": object{"value": "9.9.9"}}}}}
	parameters := object{}
	if location := c.read("location"); location != "" {
		parameters["location"] = object{"value": location}
	}
	if len(parameters) > 0 {
		list = append(list, object{"name": "spotworker-deploy", "properties": object{"parameters": parameters}})
	}
	return list, nil
}

// showDeployment has a configuration for on-demand workers with the note "ondemandworkers", and
// none at all with the note "unconfigured".
func showDeployment(c azCall) (any, error) {
	outputs, spot, onDemand := object{}, []any{"A=1", "B=2"}, []any{}
	if c.has("ondemandworkers") {
		onDemand = []any{"A=3"}
	}
	if c.has("unconfigured") {
		spot = []any{}
	}
	for name, v := range map[string]any{
		"accountName": c.accountOf(), "packagesFolder": os.Getenv("APPLICATION_VERSION"), "packagesContainer": "spotworker-packages",
		"workerConfiguration": spot, "onDemandConfiguration": onDemand,
		"readOnlyContainerIds": []any{"/scope/archive"}, "workerPrincipalIds": []any{"0000-worker"},
	} {
		outputs[name] = object{"value": v}
	}
	return object{"name": "spotworker-deploy", "properties": object{"outputs": outputs}}, nil
}

// listRoles has the noted assignment of a contributor to the worker, and three that stay:
// the worker's role to read, and the roles of somebody else.
func listRoles(c azCall) (any, error) {
	const contributor, reader = "ba92f5b4-2d11-453d-a403-e96b0029c9fe", "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
	list := []any{}
	role := func(id, principal, definition string) {
		list = append(list, object{"id": c.options["--scope"] + "/roleAssignments/" + id, "principalId": principal,
			"roleDefinitionId": "/subscriptions/1234/providers/Microsoft.Authorization/roleDefinitions/" + definition})
	}
	role("reads", "0000-worker", reader)
	role("operator", "0000-operator", contributor)
	if name := c.read("grants"); name != "" {
		role(name, "0000-worker", contributor)
	}
	return list, nil
}
