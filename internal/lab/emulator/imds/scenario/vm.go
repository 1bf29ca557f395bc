package scenario

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// nameLetters are the letters of a name: every letter that a URL takes as it stands.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func parseVMs(list []jsonpos.Value, at int) ([]imds.VM, error) {
	switch {
	case len(list) == 0:
		return nil, jsonpos.Errorf(at, `"vms" is to list one VM at least`)
	case len(list) > maxVMs:
		return nil, jsonpos.Errorf(list[maxVMs].Offset, "more than %d VMs", maxVMs)
	}
	var vms []imds.VM
	for _, n := range list {
		vm, err := parseVM(n)
		if err != nil {
			return nil, err
		}
		for _, other := range vms {
			if strings.EqualFold(other.Name, vm.Name) {
				return nil, jsonpos.Errorf(n.Offset, "there are two VMs %s", vm.Name)
			}
		}
		vms = append(vms, vm)
	}
	return vms, nil
}

func parseVM(n jsonpos.Value) (imds.VM, error) {
	f := object(n, "a VM")
	vm := imds.VM{
		Name:           f.required("name"),
		ScaleSet:       f.text("scale_set"),
		Priority:       f.choice("priority", "Spot", "SpotPlus", "Low", "Regular"),
		Location:       f.text("location"),
		Zone:           f.text("zone"),
		Size:           f.text("size"),
		ResourceGroup:  f.text("resource_group"),
		Subscription:   guid(f, "subscription"),
		Tags:           parseTags(f),
		UserData:       f.text("user_data"),
		EvictionPolicy: evictionPolicy(f),
	}
	vm.VMID = cmp.Or(guid(f, "vm_id"), made(vm.Name, "vm_id"))
	if strings.Trim(vm.Name, nameLetters) != "" || len(vm.Name) > 128 {
		f.fail(jsonpos.Errorf(n.Offset, "%q is no name of a VM: letters, digits, _ . and - only, 128 at most", vm.Name))
	}
	if _, err := base64.StdEncoding.DecodeString(vm.UserData); err != nil {
		f.fail(jsonpos.Errorf(f.get("user_data").Offset, `"user_data" is to be base64`))
	}
	if vm.Priority == "Regular" && vm.EvictionPolicy != "" {
		f.fail(jsonpos.Errorf(f.get("eviction_policy").Offset, "a Regular VM is not evicted and has no policy"))
	}
	for i, n := range f.list("identities") {
		identity, err := parseIdentity(n, fmt.Sprint(vm.Name, i))
		f.fail(err)
		vm.Identities = append(vm.Identities, identity)
	}
	return vm, f.done()
}

func evictionPolicy(f *fields) string {
	if f.get("eviction_policy") == nil {
		return ""
	}
	return f.choice("eviction_policy", "Delete", "Deallocate")
}

func parseTags(f *fields) map[string]string {
	n := f.get("tags")
	if n == nil {
		return nil
	}
	of := object(*n, `"tags"`)
	tags := map[string]string{}
	for _, m := range of.members {
		value, ok := m.Value.Data.(string)
		if !ok {
			of.fail(jsonpos.Errorf(m.Value.Offset, "a tag is a text"))
		}
		tags[m.Name] = value
	}
	f.fail(of.err)
	return tags
}

// parseIdentity reads a managed identity: the VM's own unless it has a resource
// id. It is the one of that name.
func parseIdentity(n jsonpos.Value, name string) (imds.Identity, error) {
	f := object(n, "an identity")
	i := imds.Identity{
		ClientID:   cmp.Or(guid(f, "client_id"), made(name, "client_id")),
		ObjectID:   cmp.Or(guid(f, "object_id"), made(name, "object_id")),
		ResourceID: f.text("resource_id"),
	}
	return i, f.done()
}

// guid returns a text that is a GUID, or "" if there is no such member.
func guid(f *fields, name string) string {
	text := f.text(name)
	if text != "" && uuid.Validate(text) != nil {
		f.fail(jsonpos.Errorf(f.get(name).Offset, "%q is to be a GUID", name))
	}
	return text
}

// made returns a GUID that is the same in every run: a VM keeps its id, also
// when it is put back in another round.
func made(name, what string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name+"/"+what)).String()
}
