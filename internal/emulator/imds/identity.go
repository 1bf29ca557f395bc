package imds

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/emulator/token"
)

// Identity is a managed identity of a VM.
type Identity struct {
	// ClientID is the GUID that a request chooses the identity by, and
	// ObjectID the one that roles are given to. Default: new ones.
	ClientID, ObjectID string

	// ResourceID is that of a user-assigned identity. Empty means that the
	// identity is the VM's own: the system-assigned one, of which a VM has one
	// at most.
	ResourceID string
}

func (i Identity) withDefaults() Identity {
	if i.ClientID == "" {
		i.ClientID = uuid.NewString()
	}
	if i.ObjectID == "" {
		i.ObjectID = uuid.NewString()
	}
	return i
}

// Why a request chooses none of a VM's identities.
var (
	errNoIdentity     = errors.New("the VM has no such identity")
	errManyIdentities = errors.New("the VM has several identities: name one by client_id, object_id or msi_res_id")
	errManySelectors  = errors.New("name an identity in one way only")
)

// selectors are the parameters that choose an identity, with what they are
// compared to. Both endpoints have them; MSAL writes a resource id as msi_res_id
// to the metadata service and as mi_res_id to App Service.
var selectors = map[string]func(Identity) string{
	"client_id":    func(i Identity) string { return i.ClientID },
	"object_id":    func(i Identity) string { return i.ObjectID },
	"principal_id": func(i Identity) string { return i.ObjectID },
	"msi_res_id":   func(i Identity) string { return i.ResourceID },
	"mi_res_id":    func(i Identity) string { return i.ResourceID },
}

// chooseIdentity returns the identity that a request asks for: the one it
// names, else the VM's own, else the only one.
func chooseIdentity(identities []Identity, query url.Values) (Identity, error) {
	var is func(Identity) bool
	for name, of := range selectors {
		if !query.Has(name) {
			continue
		}
		if is != nil {
			return Identity{}, errManySelectors
		}
		is = func(i Identity) bool { return strings.EqualFold(of(i), query.Get(name)) && of(i) != "" }
	}
	if is == nil {
		return defaultIdentity(identities)
	}
	for _, i := range identities {
		if is(i) {
			return i, nil
		}
	}
	return Identity{}, errNoIdentity
}

func defaultIdentity(identities []Identity) (Identity, error) {
	for _, i := range identities {
		if i.ResourceID == "" {
			return i, nil
		}
	}
	switch len(identities) {
	case 0:
		return Identity{}, errNoIdentity
	case 1:
		return identities[0], nil
	}
	return Identity{}, errManyIdentities
}

// nbfSkew is how far a token's beginning lies back, so that a service whose
// clock is slow accepts it at once. Azure has the same.
const nbfSkew = 5 * time.Minute

// issue returns the claims of a new token for an identity of the VM, signed.
func (g *Guest) issue(i Identity, resource string, now time.Time) (token.Claims, string) {
	resourceID := i.ResourceID
	if resourceID == "" {
		g.server.mu.Lock()
		resourceID = g.vm.ResourceID()
		g.server.mu.Unlock()
	}
	c := token.Claims{
		Audience: resource, ClientID: i.ClientID, ObjectID: i.ObjectID, ResourceID: resourceID,
		NotBefore: now.Add(-nbfSkew).Truncate(time.Second),
		Expires:   now.Add(g.server.options.TokenLife).Truncate(time.Second),
	}
	return c, g.server.options.Tokens.Issue(c)
}

// isResource reports whether text can name a resource: a URI or a GUID.
func isResource(text string) bool {
	if uuid.Validate(text) == nil {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "")
}
