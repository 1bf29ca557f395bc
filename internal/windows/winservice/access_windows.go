package winservice

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// Protect gives a folder or file an access list of its own, and makes the
// administrators its owner: folders under ProgramData could have been made by any
// user before.
func Protect(path string, a Access) error {
	descriptor, err := windows.SecurityDescriptorFromString("O:BA" + a.sddl())
	if err != nil {
		return fmt.Errorf("access list of %s: %w", path, err)
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return fmt.Errorf("access list of %s: %w", path, err)
	}
	list, _, err := descriptor.DACL()
	if err != nil {
		return fmt.Errorf("access list of %s: %w", path, err)
	}
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION,
		owner, nil, list, nil)
	if err != nil {
		return explain("set the access list of "+path, err)
	}
	return nil
}
