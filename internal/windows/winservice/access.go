package winservice

import (
	"crypto/sha1" //nolint:gosec // how Windows derives the id, no protection
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Access says who gets to a folder or a file. SYSTEM and administrators have all
// rights, and no other user has any.
type Access struct {
	Services []string // names of the services
	Change   bool     // they may also write and delete
}

// sddl returns the access list as Windows writes it, inherited by the folder's
// contents and inherited from nothing above it.
func (a Access) sddl() string {
	rights := "0x1200a9" // read and execute
	if a.Change {
		rights = "0x1301bf" // modify
	}
	var list strings.Builder
	list.WriteString("D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)")
	for _, name := range a.Services {
		fmt.Fprintf(&list, "(A;OICI;%s;;;%s)", rights, serviceSID(name))
	}
	return list.String()
}

// serviceSID returns the security id of a service's virtual account: S-1-5-80 and
// the SHA-1 of the name in capitals, as sc showsid prints it. It is the same before
// the service exists.
func serviceSID(name string) string {
	var data []byte
	for _, unit := range utf16.Encode([]rune(strings.ToUpper(name))) {
		data = binary.LittleEndian.AppendUint16(data, unit)
	}
	digest := sha1.Sum(data) //nolint:gosec // as above
	parts := []any{}
	for i := 0; i < len(digest); i += 4 {
		parts = append(parts, binary.LittleEndian.Uint32(digest[i:]))
	}
	return fmt.Sprintf("S-1-5-80-%d-%d-%d-%d-%d", parts...)
}
