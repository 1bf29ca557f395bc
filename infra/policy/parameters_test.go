package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// readFrom is how parameter files read parameters from variables, which tools/deploy.sh sets,
// or docs/deploy.md says to. A file may have another form, listed with its name.
var readFrom = map[string]string{
	"operatorId": "readEnvironmentVariable('OPERATOR_ID', '')", "sshPublicKey": "readEnvironmentVariable('SSH_PUBLIC_KEY', '')",
	"applicationVersion": "readEnvironmentVariable('APPLICATION_VERSION', '1.0.0')",
	"adminPassword":      "readEnvironmentVariable('ADMIN_PASSWORD', '')",
	"operatorAddresses": "empty(readEnvironmentVariable('OPERATOR_ADDRESSES', '')) ? [] : " +
		"split(readEnvironmentVariable('OPERATOR_ADDRESSES', ''), ',')",
	"actionGroupIds":   "empty(readEnvironmentVariable('ACTION_GROUP_ID', '')) ? [] : [readEnvironmentVariable('ACTION_GROUP_ID', '')]",
	"accountName":      "readEnvironmentVariable('ACCOUNT_NAME', 'accountofthefirst')",
	"accountGroup":     "readEnvironmentVariable('ACCOUNT_GROUP', 'spotworker')",
	"capacity":         "int(readEnvironmentVariable('CAPACITY', '1'))",
	"onDemandCapacity": "int(readEnvironmentVariable('ONDEMAND_CAPACITY', '0'))",

	"production.bicepparam capacity": "int(readEnvironmentVariable('CAPACITY', '3'))",
}

// wantDefaults are the defaults of the entries, on which the costs of a deployment without
// parameters depend. Where an entry has another default, its name is before the parameter.
var wantDefaults = map[string]string{
	"stage": "'Workers'", "tags": "map[]", "accountGroup": "resourceGroup().name", "location": "resourceGroup().location",
	"storageFirewall": "true", "operatorAddresses": "[]", "otherSubnets": "[]", "redundancy": "'Standard_LRS'", "dataContainers": "[]",
	"operatorId": "''", "operatorKind": "'User'", "addressPrefix": "'10.42.0.0/22'", "outbound": "'NatGateway'",
	"single.bicep outbound": "'StorageOnly'", "configurationIn": "'Blob'", "failOnInstall": "false", "workerSettings": "map[]",
	"applicationVersion": "'1.0.0'", "evictionRate": "0", "healthPort": "8810", "vmSize": "'Standard_D2as_v5'",
	"main.bicep vmSizes": "[Standard_D2as_v5]", "fleet.bicep vmSizes": "[Standard_D2as_v5 Standard_D2s_v5 Standard_D2ads_v5 " +
		"Standard_D2ds_v5 Standard_E2as_v5]", "main.bicep zones": "[]", "zones": "[1 2 3]",
	"allocationStrategy": "'PriceCapacityOptimized'", "main.bicep allocationStrategy": "'CapacityOptimized'",
	"priority": "'Spot'", "evictionPolicy": "'Delete'", "single.bicep evictionPolicy": "'Deallocate'", "maxPrice": "'-1'",
	"restoreEvicted": "false", "restoreTimeout": "'PT1H'", "baseRegularCount": "0", "regularPercentage": "0", "upgradeMode": "'Rolling'",
	"publishEvents": "false", "operatingSystem": "'Linux'", "diskType": "'StandardSSD_LRS'", "adminUsername": "'azureuser'",
	"adminPassword": "''", "autoscale": "true", "minInstances": "1", "maxInstances": "2", "times": "[]", "capacity": "minInstances",
	"jobsPerInstance": "20", "spotCapacity": "10", "regularCapacity": "1", "queueShards": "1", "queueShardsTaken": "queueShards",
	"recordedAccounts": "''", "recordedChosenIdsOn": "0", "onDemand": "false", "onDemandVmSize": "vmSizes[0]", "onDemandMinInstances": "0",
	"onDemandMaxInstances": "2", "onDemandCapacity": "onDemandMinInstances", "moveAfter": "3", "changeover": "'10m'",
	"monitoring": "true", "logStorage": "true", "logFiles": "[/var/log/spotworker/*.log]",
	"windowsLogFiles": `[C:\ProgramData\spotworker\logs\*.log]`, "logRetentionDays": "30", "logDailyQuotaGb": "1", "actionGroupIds": "[]",
	"metricsWorkspaceId": "''",
}

// otherRules are parameters whose defaults other rules check.
var otherRules = []string{
	"prefix", "accountName", "retention", "packageCommands", "windowsPackageCommands", "image", "windowsImage", "vmSizes",
}

// checkDefaults: each default of an entry is the listed one. Each output of an entry is the
// foundation's output of that name, or the listed one.
func checkDefaults(d deployment, tell report) {
	outputs := map[string]string{
		"accountName": "accountName", "packagesContainer": "foundation.outputs.names.packages", "scaleSetName": "'${prefix}-spot'",
		"fleetName": "'${prefix}-fleet'", "vmName": "'${prefix}-vm'",
	}
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			want, listed := wantDefaults[entry+" "+p.Name]
			if !listed {
				want, listed = wantDefaults[p.Name]
			}
			switch {
			case p.Default == nil || slices.Contains(otherRules, p.Name) && !listed:
			case !listed:
				tell(entry, p.Line, "no rule knows the default of %s: list it", p.Name)
			case text(p.Default) != want:
				tell(entry, p.Line, "the default of %s is %s, want %s", p.Name, text(p.Default), want)
			}
		}
		for _, o := range d[entry].Outputs {
			want, listed := outputs[o.Name]
			if !listed {
				want = "foundation.outputs." + o.Name
			}
			if got := text(o.Value); got != want {
				tell(entry, o.Line, "output %s is %s, want %s", o.Name, got, want)
			}
		}
	}
	for name, want := range map[string]string{
		"packagesFolder": "packagesFolder", "names": "names", "moreAccountNames": "moreNames", "subnetId": "network.outputs.subnetId",
		"readOnlyContainerIds": "map( filter(dataContainers, c => c.access == 'Read'), " +
			"c => '${account.id}/blobServices/default/containers/${c.name}' )",
		"workerPrincipalIds": "concat( [identities.outputs.worker.principalId], onDemand ? [identities.outputs.onDemandWorker!.principalId] " +
			": [] )",
	} {
		if got := text(named(d["modules/foundation.bicep"].Outputs, name)); got != want {
			tell("modules/foundation.bicep", 0, "output %s is %s, want %s", name, got, want)
		}
	}
}

// given are the values of our parameter files, which documents describe and on which costs
// depend; in files with an empty value the parameter is read from a variable.
var given = map[string]map[string]string{
	"cheapest.bicepparam": {
		"vmSizes":  "[Standard_D2as_v5]",
		"outbound": "'StorageOnly'", "diskType": "'Standard_LRS'", "minInstances": "1", "maxInstances": "2", "monitoring": "true",
		"operatorId": "", "sshPublicKey": "", "applicationVersion": "", "operatorAddresses": "", "capacity": "",
	},
	"production.bicepparam": {
		"vmSizes":    "[Standard_D2as_v5 Standard_D2s_v5 Standard_D2s_v4 Standard_E2as_v5 Standard_E2s_v5]",
		"redundancy": "'Standard_ZRS'", "allocationStrategy": "'CapacityOptimized'", "zones": "[1 2 3]", "evictionPolicy": "'Delete'",
		"maxPrice": "'-1'", "baseRegularCount": "2", "regularPercentage": "10", "autoscale": "true", "minInstances": "3",
		"maxInstances": "60", "jobsPerInstance": "20", "onDemand": "true", "moveAfter": "3", "onDemandVmSize": "'Standard_D2as_v5'",
		"onDemandMaxInstances": "4", "outbound": "'NatGateway'", "monitoring": "true", "logDailyQuotaGb": "5",
		"operatorId": "", "sshPublicKey": "", "applicationVersion": "", "operatorAddresses": "", "capacity": "", "onDemandCapacity": "",
		"actionGroupIds": "",
	},
	"fleet.bicepparam": {
		"spotCapacity": "40", "regularCapacity": "2", "operatorId": "", "sshPublicKey": "", "applicationVersion": "", "operatorAddresses": "",
	},
	"region.bicepparam": {
		"vmSizes":       "[Standard_D2as_v5 Standard_D2s_v5 Standard_E2as_v5]",
		"addressPrefix": "'10.43.0.0/22'", "minInstances": "1", "maxInstances": "20", "accountName": "", "accountGroup": "", "sshPublicKey": "",
		"applicationVersion": "", "capacity": "",
	},
	"windows.bicepparam": {
		"vmSizes":         "[Standard_D4as_v5 Standard_D4s_v5]",
		"operatingSystem": "'Windows'", "minInstances": "1", "maxInstances": "4", "sshPublicKey": "''", "adminPassword": "", "operatorId": "",
		"applicationVersion": "", "operatorAddresses": "", "capacity": "",
	},
	"single.bicepparam": {
		"vmSize": "'Standard_D2as_v5'", "diskType": "'Standard_LRS'", "operatorId": "", "sshPublicKey": "", "applicationVersion": "",
		"operatorAddresses": "",
	},
}

// checkParameters: parameter files read the variables that the scripts set and have the
// prefix, data and numbers that the documents name.
func checkParameters(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(name, "modules/") {
			continue
		}
		for _, p := range d[name].Params {
			v := p.Default
			if v == nil {
				v = p.Value
			}
			switch w, ok := given[name][p.Name]; {
			case !ok && strings.HasSuffix(name, ".bicepparam") && !slices.Contains([]string{"prefix", "dataContainers"}, p.Name):
				tell(name, p.Line, "no rule knows the value of %s: list it", p.Name)
			case w == "" && ok && text(v) != cmp.Or(readFrom[name+" "+p.Name], readFrom[p.Name]):
				tell(name, p.Line, "%s is %s, want it from its variable as the other files have it", p.Name, text(v))
			case w != "" && text(v) != w:
				tell(name, p.Line, "%s is %s, want %s", p.Name, text(v), w)
			}
			switch {
			case !strings.HasSuffix(name, ".bicepparam"):
			case p.Name == "prefix":
				if prefix := map[bool]string{true: "spotworker-win", false: "spotworker"}[name == "windows.bicepparam"]; p.Value != prefix {
					tell(name, p.Line, "prefix is %s, want %s: commands in the documents name it", text(p.Value), prefix)
				}
			case p.Name == "dataContainers":
				if text(p.Value) != "[map[access:Read name:archive]]" {
					tell(name, p.Line, "data is in %s, want the container archive, for reading, that the documents name", text(p.Value))
				}
			}
		}
		for parameter := range given[name] {
			if !d[name].takes(parameter) {
				tell(name, 0, "%s is not set", parameter)
			}
		}
	}
	checkPackageCommands(d, tell)
}

// checkPackageCommands: packages are unpacked before their scripts run, in every template.
func checkPackageCommands(d deployment, tell report) {
	want := map[string]string{
		"install": "'tar -xzf spotworker.tar.gz && sh ./install.sh'", "update": "'tar -xzf spotworker.tar.gz && sh ./update.sh'",
		"remove": "'for script in ./remove.sh /opt/spotworker/current/remove.sh; do [ ! -f $script ] || exec sh $script; done'",
	}
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			for command, w := range want {
				if got := text(at(p.Default, command)); p.Name == "packageCommands" && got != w {
					tell(entry, p.Line, "%s is %s, want %s", command, got, w)
				}
			}
		}
	}
}
