package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// resourceNames are the names of all resources but role assignments, by module and symbol.
// Commands of the pages, other modules and Azure itself find resources by them.
var resourceNames = map[string]map[string]string{
	"application-version": {
		"gallery": "galleryName", "application": "applicationName", "applicationVersion": "version",
	},
	"autoscale": {
		"scaleSet": "scaleSetName", "account": "accountName", "autoscale": "scaleSetName",
	},
	"eviction-alert": {
		"evictions": "'${prefix}-evictions'",
	},
	"fleet": {
		"fleet": "fleetName",
	},
	"foundation": {
		"account": "accountName",
	},
	"gallery": {
		"gallery": "galleryName", "applications": "name",
	},
	"gallery-roles": {
		"account": "accountName", "blobService": "'default'", "packages": "containerName",
	},
	"identities": {
		"spot": "'${prefix}-worker'", "regular": "'${prefix}-ondemand-worker'", "gallery": "'${prefix}-gallery'",
	},
	"log-association": {
		"identity": "'${prefix}-log-policy'", "assignment": "'${prefix}-logs'",
	},
	"metrics": {
		"endpoint": "'${prefix}-metrics'", "rule": "'${prefix}-metrics'",
	},
	"monitoring": {
		"workspace": "'${prefix}-logs'", "table": "'SpotworkerLog_CL'", "endpoint": "'${prefix}-logs'",
		"rule": "'${prefix}-logs'",
	},
	"network": {
		"securityGroup": "'${prefix}-workers'", "address": "'${prefix}-outbound'", "gateway": "'${prefix}-outbound'",
		"network": "'${prefix}-network'", "workers": "'workers'",
	},
	"no-workers-alert": {
		"alert": "'${prefix}-no-workers'",
	},
	"operator-roles": {
		"account": "accountName", "queueService": "'default'", "all": "name", "blobService": "'default'",
		"workers": "names.workers", "written": "name",
	},
	"prometheus-alerts": {
		"group": "'${prefix}-metrics'",
	},
	"regular-scale-set": {
		"scaleSet": "scaleSetName",
	},
	"single-vm": {
		"card": "vmName", "machine": "vmName", "logAgent": "'AzureMonitorLinuxAgent'",
	},
	"spot-plus": {
		"plusScaleSet": "scaleSetName",
	},
	"spot-scale-set": {
		"scaleSet": "scaleSetName",
	},
	"storage": {
		"account": "accountName", "queueService": "'default'", "queues": "name", "blobService": "'default'",
		"containers": "name", "lifecycle": "'default'",
	},
	"storage-log": {
		"account": "accountName", "blobService": "'default'", "queueService": "'default'", "blobLog": "'spotworker'",
		"queueLog": "'spotworker'",
	},
	"worker-roles": {
		"account": "accountName", "queueService": "'default'", "jobs": "name", "onDemand": "names.onDemand",
		"poison": "names.poison", "blobService": "'default'", "own": "name", "control": "names.control",
		"data": "c.name",
	},
}

// checkResourceNames: each resource has its name.
func checkResourceNames(d deployment, tell report) {
	for name, f := range d {
		names := resourceNames[strings.TrimSuffix(strings.TrimPrefix(name, "modules/"), ".bicep")]
		for _, r := range f.Resources {
			if strings.HasSuffix(r.Type, "/roleAssignments") {
				continue
			}
			if got, want := text(r.Body["name"]), names[r.Symbol]; got != want {
				tell(name, r.Line, "the name of %s is %s, want %s", r.Symbol, got, want)
			}
		}
	}
}

// notMade are types of Azure's own resources, and of parts of other resources.
var notMade = []string{
	"Microsoft.Authorization/roleDefinitions", "Microsoft.Authorization/policyDefinitions", "Microsoft.Network/virtualNetworks/subnets",
}

var resourceType = regexp.MustCompile(`'(Microsoft\.\w+/[A-Za-z/]+)(?:@([0-9a-z-]+))?'`)

// checkTypes: the deployment makes a resource of each type that a file names, for an existing
// resource too. An existing resource is asked for by a version by which it is made.
func checkTypes(d deployment, tell report) {
	versions := map[string][]string{}
	for _, f := range d {
		for _, r := range f.Resources {
			if !r.Existing {
				versions[r.Type] = append(versions[r.Type], r.APIVersion)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		for n, line := range strings.Split(d[name].source, "\n") {
			for _, m := range resourceType.FindAllStringSubmatch(line, -1) {
				if len(versions[m[1]]) == 0 && !slices.Contains(notMade, m[1]) && !strings.HasSuffix(m[1], "/action") {
					tell(name, n+1, "%s is not the type of a resource that is made here", m[1])
				}
			}
		}
		for _, r := range d[name].Resources {
			if r.Existing && !slices.Contains(notMade, r.Type) && !slices.Contains(versions[r.Type], r.APIVersion) {
				tell(name, r.Line, "%s is asked for by version %s, and made by %v", r.Symbol, r.APIVersion, versions[r.Type])
			}
		}
	}
}
