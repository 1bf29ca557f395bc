package prices

import (
	"regexp"
	"strings"
)

// The parts of a size's name, as in "Azure virtual machine sizes naming conventions": family,
// number of cores, after a dash the cores of constrained sizes, and features; then further
// parts, such as an accelerator and the version.
var (
	sizeStart   = regexp.MustCompile(`^([A-Za-z]+)(\d+(?:-\d+)?)([A-Za-z]*)$`)
	sizeVersion = regexp.MustCompile(`^[vV]\d{1,2}$`)
	accelerator = regexp.MustCompile(`^[A-Za-z]{1,3}\d{1,4}[xX]?$`)
)

// SizeName returns a size's name in Azure's spelling: with the prefix that all sizes except
// sizes of basic VMs have, and in the convention's case, as services are case-sensitive. Parts
// that do not follow the convention keep their case.
func SizeName(given string) string {
	prefix, rest := "Standard_", strings.TrimSpace(given)
	if rest == "" {
		return ""
	}
	if head, tail, found := strings.Cut(rest, "_"); found {
		switch strings.ToLower(head) {
		case "standard":
			rest = tail
		case "basic":
			prefix, rest = "Basic_", tail
		}
	}
	parts := strings.Split(rest, "_")
	start := sizeStart.FindStringSubmatch(parts[0])
	if start == nil {
		return prefix + rest
	}
	parts[0] = strings.ToUpper(start[1]) + start[2] + strings.ToLower(start[3])
	for i, part := range parts[1:] {
		switch {
		case sizeVersion.MatchString(part):
			parts[i+1] = strings.ToLower(part)
		case accelerator.MatchString(part):
			parts[i+1] = strings.ToUpper(part)
		case strings.EqualFold(part, "Promo"):
			parts[i+1] = "Promo"
		}
	}
	return prefix + strings.Join(parts, "_")
}
