package lab

import (
	"fmt"
	"os"
	"path/filepath"

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

	granted   imds.Identity
	authority *tlsca.Authority
}

// newIdentity opens a storage account over TLS, with a certificate authority of
// its own.
func newIdentity(s *storage.Server, at storage.Addresses) (*Identity, error) {
	authority, err := tlsca.New()
	if err != nil {
		return nil, err
	}
	config, err := authority.ServerConfig()
	if err != nil {
		return nil, err
	}
	i := &Identity{authority: authority, granted: imds.Identity{
		ClientID: uuid.NewString(), ObjectID: uuid.NewString(),
		ResourceID: fmt.Sprintf("/subscriptions/%s/resourceGroups/rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/spotworker", uuid.Nil),
	}}
	i.Endpoints, err = s.ListenTLS(at, config)
	return i, err
}

// writeAuthority writes the certificate that clients are to trust into a folder,
// and returns the file's path.
func (i *Identity) writeAuthority(folder string) (string, error) {
	name := filepath.Join(folder, "ca.pem")
	if err := i.authority.WriteFile(name); err != nil {
		return "", err
	}
	if _, err := os.Stat(name); err != nil {
		return "", err
	}
	return name, nil
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
