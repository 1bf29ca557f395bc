package preempt

import "strings"

// Names reports whether e is about the VM with this identity.
//
// Resources hold VM names as the metadata service's own compute/name gives
// them: <scale set>_<instance number> for a VM of a Uniform scale set,
// <scale set>_<8 characters> for one of a Flexible set, the VM's name
// otherwise. The host name is none of these. Azure keeps the case a name was
// created with but does not tell names apart by it, so case is ignored; nothing
// else is, as set_1 must not answer for set_10. An identity that is not known
// yet is named by no event.
func (e Event) Names(self Identity) bool {
	if self.Name == "" {
		return false
	}
	for _, resource := range e.Resources {
		if strings.EqualFold(resource, self.Name) {
			return true
		}
	}
	return false
}
