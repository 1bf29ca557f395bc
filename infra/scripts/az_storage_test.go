package scripts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// showAccount has the storage accounts of the first region, which the note "accountsoffirst"
// lists.
func showAccount(c azCall) (any, error) {
	id := "/subscriptions/" + c.options["--name"]
	if c.options["--resource-group"] != "firstregion" || !slices.Contains(c.lines("accountsoffirst"), id) {
		return nil, errors.New("(ResourceNotFound)")
	}
	return object{"id": id, "name": c.options["--name"]}, nil
}

// regionSubnet is the subnet of the VMs of a resource group.
func regionSubnet(group string) string {
	return "/subscriptions/1234/resourceGroups/" + group + "/providers/Microsoft.Network/virtualNetworks/spotworker-network/subnets/workers"
}

// listAccounts has the account of a resource group, which lets in the subnets of the note "admits".
func listAccounts(c azCall) (any, error) {
	rules := []any{object{"state": "Succeeded", "virtualNetworkResourceId": regionSubnet(c.options["--resource-group"])},
		object{"state": "Succeeded", "virtualNetworkResourceId": "/subscriptions/1234/resourceGroups/other/subnets/build"},
		object{"state": "NetworkSourceDeleted", "virtualNetworkResourceId": regionSubnet("deleted")}}
	for _, id := range c.lines("admits") {
		rules = append(rules, object{"state": "Succeeded", "virtualNetworkResourceId": id})
	}
	return []any{object{"name": "someaccount", "networkRuleSet": object{"virtualNetworkRules": rules}}}, nil
}

// accountOf is the account of a resource group's deployment: the note "account", but for a stranger.
func (c azCall) accountOf() string {
	if c.options["--resource-group"] == "stranger" {
		return "anotheraccount"
	}
	return cmpOr(c.read("account"), "someaccount")
}

// listRegions has the scale sets of all resource groups: those of the note "regions", each with
// resource group, region and number of VMs, and those of others.
func listRegions(c azCall) []any {
	list := []any{}
	words := append(c.lines("regions"), "STRANGER", "westeurope", "9")
	for ; len(words) > 2; words = words[3:] {
		capacity, _ := strconv.Atoi(words[2])
		for _, name := range []string{"spotworker-spot", "spotworker-ondemand"} {
			list = append(list, object{"name": name, "resourceGroup": words[0], "location": words[1], "sku": object{"capacity": capacity},
				"virtualMachineProfile": object{"applicationProfile": object{"galleryApplications": []any{
					object{"packageReferenceId": "/galleries/g/applications/a/versions/1.4.0"}}}}})
		}
	}
	return list
}

// listFleets has the fleets of the note "fleets", with targets, and one of another prefix.
func listFleets(c azCall) any {
	list := []any{object{"name": "other-fleet-1-0-0", "properties": object{"spotPriorityProfile": object{"capacity": 66}}}}
	words := c.lines("fleets")
	for i := 0; i+1 < len(words); i += 2 {
		capacity, _ := strconv.Atoi(words[i+1])
		list = append(list, object{"name": words[i], "properties": object{"spotPriorityProfile": object{"capacity": capacity}}})
	}
	return object{"value": list}
}

// getResource answers az rest: the fleets of the resource group, or one queue of an account. Account first has the queue of jobs,
// account new does not, others may not be read.
func getResource(c azCall) (any, error) {
	url, query, _ := strings.Cut(c.options["--url"], "?")
	account, queue, _ := strings.Cut(strings.TrimPrefix(url, "/subscriptions/"), "/queueServices/default/queues/")
	switch {
	case c.options["--method"] != "get" || !strings.HasPrefix(query, "api-version="):
		return nil, errors.New("(BadRequest)")
	case strings.HasSuffix(url, "/resourceGroups/spotworker/providers/Microsoft.AzureFleet/fleets"):
		return listFleets(c), nil
	case account == "first" && queue == "spotworker-jobs":
		return object{"name": queue, "properties": object{}}, nil
	case account == "first" || account == "new":
		return nil, errors.New("(QueueNotFound)")
	}
	return nil, errors.New("(Forbidden)")
}

// regionVM is a VM of each resource group.
const regionVM = "spotworker-spot_00000000"

// blobNote is the note of a blob's digest.
func blobNote(name string) string { return "blob_" + strings.ReplaceAll(name, "/", "_") }

// listedBlobs is how many blobs az lists without --num-results.
const listedBlobs = 5000

// listBlobs has heartbeats in the workers' container, and packages elsewhere. Metadata is
// there only if it is asked for. The note "gone" is how many workers are gone.
func listBlobs(c azCall) (any, error) {
	with := func(name string, metadata object) object {
		if !strings.Contains(c.options["--include"], "m") {
			return object{"name": name, "metadata": nil}
		}
		return object{"name": name, "metadata": metadata}
	}
	if strings.HasSuffix(c.options["--container-name"], "-workers") {
		if c.has("grown") {
			if err := os.Rename(filepath.Join(string(c.notes), "grown"), filepath.Join(string(c.notes), "capacity")); err != nil {
				return nil, err
			}
		}
		gone, _ := strconv.Atoi(cmpOr(c.read("gone"), "1"))
		var list []any
		for i := range gone {
			list = append(list, with("a-gone-"+strconv.Itoa(i), object{"program": "1.2.3", "state": "process", "at": "1", "vm": regionVM}))
		}
		workers, _ := strconv.Atoi(cmpOr(c.read("heartbeats"), "1"))
		for i := 0; i < workers && !c.has("silent"); i++ {
			list = append(list, with("vm-"+strconv.Itoa(i), object{"program": c.read("program"), "state": c.read("state"), "at": now(),
				"vm": cmpOr(c.read("heartbeatsof"), regionVM)}))
		}
		if c.options["--num-results"] != "*" {
			list = list[:min(len(list), listedBlobs)]
		}
		return list, nil
	}
	if c.has("refused") {
		return nil, errors.New("AuthorizationFailure")
	}
	if c.take("refuse") {
		return nil, errors.New("AuthorizationPermissionMismatch")
	}
	list := []any{}
	files, err := filepath.Glob(filepath.Join(string(c.notes), blobNote(c.options["--prefix"])+"*"))
	if err != nil || c.has("stale") {
		return list, err
	}
	for _, file := range files {
		name := strings.Replace(strings.TrimPrefix(filepath.Base(file), "blob_"), "_", "/", 1)
		list = append(list, with(name, object{"sha256": c.read(filepath.Base(file))}))
	}
	return list, nil
}

// uploadBlob overwrites only if it is told to.
func uploadBlob(c azCall) (any, error) {
	digest, err := digestOf(c.options["--file"])
	if err != nil || c.options["--metadata"] != "sha256="+digest {
		return nil, fmt.Errorf("--metadata is %q of a file with the digest %s (%w)", c.options["--metadata"], digest, err)
	}
	note := blobNote(c.options["--name"])
	if c.has(note) && c.options["--overwrite"] != "true" {
		return nil, fmt.Errorf("(BlobAlreadyExists) %s", c.options["--name"])
	}
	c.take(note)
	c.add(note, strings.TrimPrefix(c.options["--metadata"], "sha256="))
	return object{"lastModified": "2026-01-01"}, nil
}
