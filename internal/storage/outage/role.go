package outage

import (
	"errors"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// roleCodes are the service's codes of a refusal for lack of a role.
var roleCodes = []string{"AuthorizationPermissionMismatch", "InsufficientAccountPermissions"}

// roleFor returns the role that a worker lacks whose call was denied, or "" if a role
// would not help.
func roleFor(c Call) string {
	response, ok := errors.AsType[*azcore.ResponseError](c.Err)
	switch {
	case !ok || !slices.Contains(roleCodes, response.ErrorCode):
		return ""
	case c.Service == "queue":
		return "Storage Queue Data Contributor"
	default:
		return "Storage Blob Data Contributor"
	}
}
