package policy

import (
	"slices"
	"strings"
)

// checkNetwork: nothing comes in, no VM has an address of its own, and what
// goes out is explicit.
func checkNetwork(d deployment, tell report) {
	for path, f := range d {
		for _, r := range f.Resources {
			switch r.Type {
			case "Microsoft.Network/networkSecurityGroups":
				checkSecurityGroup(path, r, tell)
			case "Microsoft.Network/virtualNetworks":
				checkSubnets(path, r, tell)
			}
		}
		if strings.Contains(f.source, "publicIPAddressConfiguration") {
			tell(path, 0, "a VM has a public address")
		}
	}
}

func checkSecurityGroup(path string, r resource, tell report) {
	list, _ := at(r.Body, "properties", "securityRules").([]any)
	closed := slices.ContainsFunc(list, func(rule value) bool {
		properties := at(rule, "properties")
		return at(properties, "access") == "Deny" && at(properties, "direction") == "Inbound" && at(properties, "sourceAddressPrefix") == "*" &&
			at(properties, "destinationPortRange") == "*" && at(properties, "protocol") == "*"
	})
	if !closed {
		tell(path, r.Line, "no rule denies everything that comes in")
	}
	for _, rule := range list {
		if properties := at(rule, "properties"); at(properties, "direction") == "Inbound" && at(properties, "access") != "Deny" {
			tell(path, r.Line, "rule %s lets something in", text(at(rule, "name")))
		}
	}
}

func checkSubnets(path string, r resource, tell report) {
	subnets, _ := at(r.Body, "properties", "subnets").([]any)
	if len(subnets) == 0 {
		tell(path, r.Line, "no subnets")
	}
	for _, subnet := range subnets {
		properties, name := at(subnet, "properties"), text(at(subnet, "name"))
		if at(properties, "defaultOutboundAccess") != false {
			tell(path, r.Line, "subnet %s reaches the internet by Azure's default, with an address that is not in the templates", name)
		}
		if text(at(properties, "networkSecurityGroup", "id")) != "securityGroup.id" {
			tell(path, r.Line, "subnet %s has no security group", name)
		}
	}
}
