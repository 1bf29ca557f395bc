package arm

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// manage answers every call that needs a token. ARM compares paths without
// case, which is why they are matched here and not by the mux.
func (s *Server) manage(w http.ResponseWriter, r *http.Request) {
	if no := s.checkToken(r); no != nil {
		no.write(w)
		return
	}
	if r.Method == http.MethodGet && strings.EqualFold(strings.TrimRight(r.URL.Path, "/"), "/subscriptions") {
		s.subscriptions(w, r)
		return
	}
	if match := listPath.FindStringSubmatch(r.URL.Path); match != nil && r.Method == http.MethodGet {
		s.list(w, r, match[1], match[2])
		return
	}
	vm, no := s.addressed(r)
	switch {
	case no != nil:
		no.write(w)
	case r.Method == http.MethodGet:
		s.show(w, r, vm)
	default:
		s.evictLater(vm.Name)
		setRequestID(w)
		w.WriteHeader(http.StatusNoContent)
	}
}

// subscriptions lists the VMs' subscriptions.
func (s *Server) subscriptions(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	var listed []string
	for _, vm := range s.options.Metadata.VMs() {
		id := strings.ToLower(vm.Subscription)
		if slices.Contains(listed, id) {
			continue
		}
		listed = append(listed, id)
		list = append(list, map[string]any{
			"id": "/subscriptions/" + id, "subscriptionId": id, "tenantId": s.tokens.Tenant(),
			"displayName": "spotworker lab", "state": "Enabled",
		})
	}
	s.writePage(w, r, list)
}

// vmPath is the id of a VM in the two forms that it has, and what follows it:
// its groups are the id, subscription, resource group, type and name, and the
// action.
var vmPath = regexp.MustCompile(`(?i)^(/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/` +
	`(Microsoft\.Compute/(?:virtualMachineScaleSets/[^/]+/)?virtualMachines/[^/]+))(?:/(.*))?$`)

const (
	action = "simulateEviction"

	// firstVersion is the api-version that introduced the action, for both
	// forms of VMs. Being dates, versions compare as text.
	firstVersion = "2019-12-01"
)

var anyVersion = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}(-preview)?$`)

// addressed returns the VM that a call is to show or to evict, or the refusal, checked in
// ARM's order.
func (s *Server) addressed(r *http.Request) (imds.VM, *refusal) {
	match := vmPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		return imds.VM{}, refuse(http.StatusNotFound, "NotFound",
			"this emulator knows /subscriptions and the VMs of the metadata emulator, and not %s", r.URL.Path)
	}
	shows := r.Method == http.MethodGet && match[5] == ""
	first, what := firstVersion, action
	if shows {
		first, what = firstReadVersion, "the priority of VMs"
	}
	if no := checkVersion(r.URL.Query().Get("api-version"), first, what); no != nil {
		return imds.VM{}, no
	}
	vm, no := s.find(match[1], match[2], match[3], match[4])
	switch {
	case no != nil:
		return imds.VM{}, no
	case shows && isResource(vm):
		return vm, nil
	case r.Method != http.MethodPost || !strings.EqualFold(match[5], action):
		return imds.VM{}, refuse(http.StatusNotImplemented, "NotImplemented",
			"this emulator lists and shows VMs and can do one thing with one, POST …/%s, and not %s %s", action, r.Method, r.URL.Path)
	case !vm.Evictable():
		return imds.VM{}, refuse(http.StatusConflict, "OperationNotAllowed",
			"VM %s has priority %s: only Spot VMs are evicted", vm.Name, vm.Priority)
	}
	return vm, nil
}

// find returns the VM with that id, or which part of the id does not exist.
func (s *Server) find(id, subscription, group, name string) (imds.VM, *refusal) {
	code, missing := "SubscriptionNotFound", "there is no subscription "+subscription
	for _, vm := range s.options.Metadata.VMs() {
		switch {
		case strings.EqualFold(vm.ResourceID(), id):
			return vm, nil
		case !strings.EqualFold(vm.Subscription, subscription):
		case strings.EqualFold(vm.ResourceGroup, group):
			code, missing = "ResourceNotFound", "there is no "+name+" in resource group "+group
		case code == "SubscriptionNotFound":
			code, missing = "ResourceGroupNotFound", "there is no resource group "+group
		}
	}
	return imds.VM{}, refuse(http.StatusNotFound, code, "%s", missing)
}

// checkVersion refuses an api-version without what came with the first one.
func checkVersion(version, first, what string) *refusal {
	switch {
	case version == "":
		return refuse(http.StatusBadRequest, "MissingApiVersionParameter", "the parameter api-version is missing")
	case !anyVersion.MatchString(version) || version < first:
		return refuse(http.StatusBadRequest, "InvalidApiVersionParameter", "api-version %q does not have %s: it came with %s", version, what,
			first)
	}
	return nil
}
