package policy

import "fmt"

// checkEviction: every VM that may be evicted has an eviction policy and a
// price, and every scale set is Flexible, which alone mixes sizes and
// priorities. A fleet replaces evicted VMs.
func checkEviction(d deployment, tell report) {
	for path, f := range d {
		for _, r := range f.Resources {
			if r.Type == "Microsoft.Compute/virtualMachineScaleSets" && !r.Existing {
				checkSku(path, f, r, tell)
			}
			if r.Existing || r.Symbol == spotPlusSymbol && text(at(r.Body, "properties")) == "model" {
				continue
			}
			switch r.Type {
			case "Microsoft.Compute/virtualMachineScaleSets":
				checkScaleSet(path, r, tell)
			case "Microsoft.AzureFleet/fleets":
				checkFleet(path, r, tell)
			case "Microsoft.Compute/virtualMachines":
				checkMachine(path, r, tell)
			}
		}
	}
}

// checkSku: with a mix of sizes Azure refuses a tier (SkuTierMustNotBeSetIfSkuProfileIsSpecified).
func checkSku(path string, f *file, r resource, tell report) {
	sku := at(r.Body, "sku")
	if text(sku) == "sku" && named(f.Variables, "sku") != nil {
		sku = named(f.Variables, "sku")
	}
	keys, isObject := sku.(map[string]any)
	switch {
	case text(sku) == "sku" && f.takes("sku"): // of the other file
	case !isObject || len(keys) != 2 || keys["name"] == nil || keys["capacity"] == nil:
		tell(path, r.Line, "sku is %s, want a name and a capacity alone", text(sku))
	}
}

func checkScaleSet(path string, r resource, tell report) {
	if got := at(r.Body, "properties", "orchestrationMode"); got != "Flexible" {
		tell(path, r.Line, "orchestration mode is %s, want Flexible", text(got))
	}
	if at(r.Body, "properties", "upgradePolicy", "automaticOSUpgradePolicy") != nil {
		tell(path, r.Line, "Flexible orchestration has no automatic OS upgrade: Azure refuses the scale set")
	}
	profile := at(r.Body, "properties", "virtualMachineProfile")
	policy, price := text(at(profile, "evictionPolicy")), text(at(profile, "billingProfile", "maxPrice"))
	if at(profile, "priority") == "Regular" {
		if policy != "" || price != "" {
			tell(path, r.Line, "regular VMs have no eviction policy and no price, these have %q and %q", policy, price)
		}
		if at(profile, "scheduledEventsProfile", "terminateNotificationProfile", "enable") != true {
			tell(path, r.Line, "regular VMs have no terminateNotificationProfile: a scale-in would come without notice")
		}
		return
	}
	if text(at(profile, "priority")) != "priority" {
		tell(path, r.Line, "priority is %s, want the parameter", text(at(profile, "priority")))
	}
	if policy != "evictionPolicy" {
		tell(path, r.Line, "eviction policy is %q, want the parameter", policy)
	}
	if price != "json(maxPrice)" {
		tell(path, r.Line, "maximum price is %q, want json(maxPrice)", price)
	}
	if at(profile, "scheduledEventsProfile") != nil {
		tell(path, r.Line, "Spot VMs cannot have a termination notification")
	}
}

func checkFleet(path string, r resource, tell report) {
	spot := at(r.Body, "properties", "spotPriorityProfile")
	for key, want := range map[string]string{"maxPricePerVM": "json(maxPrice)", "evictionPolicy": "'Delete'", "maintain": "true"} {
		if got := text(at(spot, key)); got != want {
			tell(path, r.Line, "%s of the Spot VMs is %q, want %s", key, got, want)
		}
	}
	for _, profile := range []string{"spotPriorityProfile", "regularPriorityProfile"} {
		if at(r.Body, "properties", profile, "minCapacity") != nil {
			tell(path, r.Line, "%s has minCapacity, which cannot be changed later", profile)
		}
	}
}

func checkMachine(path string, r resource, tell report) {
	for key, want := range map[string]string{"priority": "'Spot'", "evictionPolicy": "evictionPolicy",
		"applicationProfile": "vm.applicationProfile(packageId, failOnInstall)"} {
		if got := text(at(r.Body, "properties", key)); got != want {
			tell(path, r.Line, "%s of the VM is %q, want %s", key, got, want)
		}
	}
	if got := text(at(r.Body, "properties", "billingProfile", "maxPrice")); got != "json(maxPrice)" {
		tell(path, r.Line, "maximum price is %q, want json(maxPrice)", got)
	}
}

// checkHealth: every resource that makes VMs asks the worker for its health and
// installs its package, and a package that fails fails the deployment.
func checkHealth(d deployment, tell report) {
	for path, f := range d {
		for _, r := range f.Resources {
			profile := at(r.Body, "properties", "virtualMachineProfile")
			if r.Type == "Microsoft.AzureFleet/fleets" {
				profile = at(r.Body, "properties", "computeProfile", "baseVirtualMachineProfile")
			}
			if profile == nil {
				continue
			}
			system, fails := "operatingSystem", "failOnInstall"
			if r.Type == "Microsoft.AzureFleet/fleets" { // which could not be changed later
				system, fails = "'Linux'", "false"
			}
			want := fmt.Sprintf("concat([vm.healthExtension(%[1]s, healthPort)], sendLogs ? [vm.logExtension(%[1]s, identityId)] : [])", system)
			if got := text(at(profile, "extensionProfile", "extensions")); got != want {
				tell(path, r.Line, "extensions are %q, want %s", got, want)
			}
			if got, want := text(at(profile, "applicationProfile")), "vm.applicationProfile(packageId, "+fails+")"; got != want {
				tell(path, r.Line, "applications are %q, want %s", got, want)
			}
		}
	}
}
