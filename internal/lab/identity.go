package lab

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/emulator/tlsca"
)

// Identity is the way to a storage account that accepts tokens only over TLS:
// a managed identity that all VMs share, as the VMs of a scale set do.
type Identity struct {
	// Endpoints are the addresses of the account's services.
	Endpoints storage.Endpoints

	granted imds.Identity
}

// newIdentity opens a storage account over TLS.
func newIdentity(s *storage.Server, at storage.Addresses, authority *tlsca.Authority) (*Identity, error) {
	config, err := authority.ServerConfig()
	if err != nil {
		return nil, err
	}
	i := &Identity{granted: imds.Identity{
		ClientID: uuid.NewString(), ObjectID: uuid.NewString(),
		ResourceID: fmt.Sprintf("/subscriptions/%s/resourceGroups/rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/spotworker", uuid.Nil),
	}}
	i.Endpoints, err = s.ListenTLS(at, config)
	return i, err
}

// environment returns the variables that lead a process on any VM to the
// account. What a VM needs besides is in [Local.vmEnvironment].
func (i *Identity) environment(authority string) []string {
	return []string{
		"SSL_CERT_FILE=" + authority,
		"AZURE_CLIENT_ID=" + i.granted.ClientID,
		"SPOTWORKER_ACCOUNT=" + storage.DefaultAccount,
		"SPOTWORKER_BLOB_ENDPOINT=" + i.Endpoints.Blob,
		"SPOTWORKER_QUEUE_ENDPOINT=" + i.Endpoints.Queue,
	}
}

// tokenEnvironment returns the variables that make the SDKs ask a VM's identity
// endpoint for tokens, and not the fixed address that a VM in Azure has.
func (l *Local) tokenEnvironment(vm string) []string {
	if l.Identity == nil {
		return nil
	}
	return l.Metadata.VM(vm).IdentityEnvironment(l.Endpoint(vm))
}
