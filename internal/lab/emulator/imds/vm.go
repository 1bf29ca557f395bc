package imds

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// VM describes a virtual machine. Only Name is required.
type VM struct {
	// Name is the name in events and metadata. In a Uniform scale set it is
	// <scale set>_<number>, in a Flexible one <scale set>_<8 characters>.
	Name string

	// VMID is the VM's GUID. Default: a new one.
	VMID string

	// ScaleSet is the scale set's name, empty for a single VM. VMs of one
	// scale set see each other's events.
	ScaleSet string

	// Location is the region. Default: westeurope.
	Location string

	// Zone is the availability zone. Default: none.
	Zone string

	// Priority is Spot, SpotPlus, Low or Regular. Default: Spot.
	Priority string

	// EvictionPolicy is Delete or Deallocate. Default: Delete, or none for a
	// Regular VM.
	EvictionPolicy string

	// Size is the VM size. Default: Standard_D2as_v5.
	Size string

	// ResourceGroup and Subscription make up the resource id. Defaults: rg, and
	// a GUID of zeros.
	ResourceGroup string
	Subscription  string

	// Tags are the tags of the VM resource.
	Tags map[string]string

	// UserData is base64 text.
	UserData string

	// Identities are the managed identities that the VM can get tokens of.
	// Default: none.
	Identities []Identity
}

func (vm VM) withDefaults() VM {
	vm.VMID = cmp.Or(vm.VMID, uuid.NewString())
	vm.Location = cmp.Or(vm.Location, "westeurope")
	vm.Priority = cmp.Or(vm.Priority, "Spot")
	if vm.Evictable() {
		vm.EvictionPolicy = cmp.Or(vm.EvictionPolicy, "Delete")
	}
	vm.Size = cmp.Or(vm.Size, "Standard_D2as_v5")
	vm.ResourceGroup = cmp.Or(vm.ResourceGroup, "rg")
	vm.Subscription = cmp.Or(vm.Subscription, uuid.Nil.String())
	identities := make([]Identity, len(vm.Identities))
	for i, identity := range vm.Identities {
		identities[i] = identity.withDefaults()
	}
	vm.Identities = identities
	return vm
}

// Evictable reports whether the platform may evict the VM: any but a Regular one.
func (vm VM) Evictable() bool { return !strings.EqualFold(vm.Priority, "Regular") }

// key is how names are compared: without case, as Azure does.
func key(name string) string { return strings.ToLower(name) }

// groupOf names the set of VMs that share a document. The prefixes keep a scale
// set apart from a single VM of the same name.
func groupOf(vm VM) string {
	if vm.ScaleSet != "" {
		return "set:" + key(vm.ScaleSet)
	}
	return "vm:" + key(vm.Name)
}

// ResourceID names a Uniform instance if the name ends in a number, as only those are
// children of their scale set. Subscription and ResourceGroup must be set, as they are in
// the VMs that [Server.VMs] returns.
func (vm VM) ResourceID() string {
	base := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute",
		vm.Subscription, vm.ResourceGroup)
	if number, ok := vm.uniformNumber(); ok {
		return fmt.Sprintf("%s/virtualMachineScaleSets/%s/virtualMachines/%s", base, vm.ScaleSet, number)
	}
	return base + "/virtualMachines/" + vm.Name
}

// uniformNumber returns the instance number of a VM in a Uniform scale set. A
// Flexible name ends in 8 characters; numbers that long do not occur.
func (vm VM) uniformNumber() (string, bool) {
	prefix := vm.ScaleSet + "_"
	if vm.ScaleSet == "" || len(vm.Name) <= len(prefix) || !strings.EqualFold(vm.Name[:len(prefix)], prefix) {
		return "", false
	}
	number := vm.Name[len(prefix):]
	return number, len(number) < 8 && strings.Trim(number, "0123456789") == ""
}

// compute is the document of /metadata/instance/compute: every primitive is a string,
// empty if it does not apply. It has only fields with a meaning for an emulated VM.
func (vm VM) compute() map[string]any {
	tags := make([]any, 0, len(vm.Tags))
	var flat []string
	for _, name := range slices.Sorted(maps.Keys(vm.Tags)) {
		tags = append(tags, map[string]any{"name": name, "value": vm.Tags[name]})
		flat = append(flat, name+":"+vm.Tags[name])
	}
	return map[string]any{
		"azEnvironment":        "AzurePublicCloud",
		"evictionPolicy":       vm.EvictionPolicy,
		"licenseType":          "",
		"location":             vm.Location,
		"name":                 vm.Name,
		"osType":               "Linux",
		"placementGroupId":     "",
		"platformFaultDomain":  "0",
		"platformUpdateDomain": "0",
		"priority":             vm.Priority,
		"provider":             "Microsoft.Compute",
		"resourceGroupName":    vm.ResourceGroup,
		"resourceId":           vm.ResourceID(),
		"subscriptionId":       vm.Subscription,
		"tags":                 strings.Join(flat, ";"),
		"tagsList":             tags,
		"userData":             vm.UserData,
		"vmId":                 vm.VMID,
		"vmScaleSetName":       vm.ScaleSet,
		"vmSize":               vm.Size,
		"zone":                 vm.Zone,
	}
}

// instanceVersions are the documented versions that have every emulated field; user data
// came with 2021-01-01. Events have other versions.
var instanceVersions = []string{
	"2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01",
	"2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01",
	"2023-11-15", "2024-03-15", "2024-07-17", "2025-04-07",
}

// instance answers /metadata/instance and the paths below it. Each segment of a path is a
// key, or an index, of the document. A branch is JSON; a leaf is plain text and must be
// asked for with format=text. There is no network part.
func (g *Guest) instance(c call, below []string) reply {
	if c.Method != http.MethodGet {
		return *methodNotAllowed(http.MethodGet)
	}
	if bad := c.checkVersion(instanceVersions); bad != nil {
		return *bad
	}
	g.server.mu.Lock()
	document := map[string]any{"compute": g.vm.compute()}
	g.server.mu.Unlock()

	node, ok := descend(document, below)
	if !ok {
		return *refuse(http.StatusNotFound, "the instance has no such element")
	}
	leaf, isLeaf := node.(string)
	format := c.query.Get("format")
	switch {
	case isLeaf && format == "text":
		return reply{status: http.StatusOK, contentType: contentText, body: []byte(leaf)}
	case !isLeaf && (format == "" || format == "json"):
		return jsonReply(http.StatusOK, node)
	default:
		return *refuse(http.StatusBadRequest, "the format %q does not fit: text for a leaf, json for the rest", format)
	}
}

// descend follows path from node.
func descend(node any, path []string) (any, bool) {
	for _, segment := range path {
		var ok bool
		switch parent := node.(type) {
		case map[string]any:
			node, ok = parent[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if ok = err == nil && i >= 0 && i < len(parent); ok {
				node = parent[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return node, true
}
