// Package identity runs the unmodified programs as on a VM in Azure: Azure's own
// names and addresses, a managed identity, and no setting but the account's name.
// Its test is built with the tag integration; see make integration.
package identity
