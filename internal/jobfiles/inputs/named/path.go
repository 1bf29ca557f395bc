package named

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a path in the folder of inputs, in bytes. Longer ones may not exist on a file
// system.
const (
	maxPath = 1024
	maxPart = 255
)

// CheckPath returns why a path is not one for the folder of inputs: it must be relative,
// with slashes, and stay in it.
func CheckPath(path string) error {
	switch {
	case len(path) > maxPath:
		return fmt.Errorf("a path has at most %d bytes", maxPath)
	case strings.HasPrefix(path, "/"):
		return errors.New("the path must be relative to the folder of inputs")
	case !utf8.ValidString(path), strings.ContainsFunc(path, unicode.IsControl), strings.Contains(path, `\`):
		return errors.New("a path has no control characters and no backslash, and separates folders by slashes")
	}
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
			return errors.New("a part of the path is empty")
		case part == "." || part == "..":
			return errors.New("the path would leave the folder of inputs, or name it again")
		case len(part) > maxPart:
			return fmt.Errorf("a part of a path has at most %d bytes", maxPart)
		}
	}
	return nil
}

// reserved are the names of devices of Windows, with any extension.
var reserved = map[string]bool{"CON": true, "PRN": true, "AUX": true, "NUL": true, "CONIN$": true, "CONOUT$": true}

// CheckWindowsPath returns why a path that [CheckPath] accepts cannot be a file on
// Windows.
func CheckWindowsPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		base, _, _ := strings.Cut(part, ".")
		base = strings.ToUpper(strings.TrimRight(base, " "))
		numbered := len(base) > 3 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) &&
			strings.Trim(base[3:], "0123456789¹²³") == "" && utf8.RuneCountInString(base[3:]) == 1
		switch {
		case reserved[base] || numbered:
			return fmt.Errorf("%s is the name of a device on Windows", part)
		case strings.ContainsAny(part, `<>:"|?*`):
			return errors.New(`names on Windows have none of < > : " | ? *`)
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
			return errors.New("names on Windows do not end with a dot or a space")
		}
	}
	return nil
}
