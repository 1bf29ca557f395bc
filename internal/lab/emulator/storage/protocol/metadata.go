package protocol

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

const (
	metadataPrefix   = "x-ms-meta-"
	maxMetadataBytes = 8 << 10 // names and values together
)

// ParseMetadata reads the metadata headers of a request, with names in lower
// case. It refuses what Azure refuses: names that are no C# identifiers,
// values that are empty or hold anything but printable ASCII, and more than
// 8 KiB. It returns nil when there are none.
func ParseMetadata(h http.Header) (map[string]string, error) {
	var m map[string]string
	size := 0
	for key, values := range h {
		name, found := strings.CutPrefix(strings.ToLower(key), metadataPrefix)
		if !found {
			continue
		}
		value := strings.Join(values, ",")
		if err := checkMetadata(name, value); err != nil {
			return nil, err
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[name] = value
		size += len(name) + len(value)
	}
	if size > maxMetadataBytes {
		return nil, errMetadataTooLarge.Because("%d bytes", size)
	}
	return m, nil
}

func checkMetadata(name, value string) error {
	if name == "" {
		return errEmptyMetadataKey
	}
	if !isIdentifier(name) {
		return errInvalidMetadata.Because("name %q is not a C# identifier", name)
	}
	if value == "" {
		return errInvalidMetadata.Because("the value of %q is empty", name)
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' {
			return errInvalidMetadata.Because("the value of %q has the byte %#02x, which is not printable ASCII", name, c)
		}
	}
	return nil
}

// isIdentifier reports whether name is a C# identifier, as far as a header's
// name can be one.
func isIdentifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
		digit := c >= '0' && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return name != ""
}

// WriteMetadata writes metadata into a listing, in the order of names.
func WriteMetadata(doc *XML, m map[string]string) {
	doc.Open("Metadata")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		doc.Text(name, m[name])
	}
	doc.Close("Metadata")
}
