package workercmd

import (
	"strings"
	"testing"
)

// TestContainerOf: a container of --input-container is a name or a URL, and no error repeats a signature.
func TestContainerOf(t *testing.T) {
	for given, want := range map[string][2]string{
		"data": {"", "data"},
		"https://Shared.blob.core.windows.net/data":  {"https://shared.blob.core.windows.net", "data"},
		"https://shared.blob.core.windows.net/data/": {"https://shared.blob.core.windows.net", "data"},
		"https://127.0.0.1:1/account/data":           {"https://127.0.0.1:1/account", "data"},
	} {
		if account, name, err := containerOf(given); err != nil || account != want[0] || name != want[1] {
			t.Errorf("containerOf(%q) = %q, %q, %v, want %q", given, account, name, err, want)
		}
	}
	for given, want := range map[string]string{
		"https://shared.blob.core.windows.net":                "names no container",
		"http://shared.blob.core.windows.net/data":            "is not https://",
		"https://shared.blob.core.windows.net/data?sig=S3CRE": "without a signature",
		"https://user:S3CRE@shared.blob.core.windows.net/d":   "without a signature",
	} {
		if _, _, err := containerOf(given); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "S3CRE") {
			t.Errorf("containerOf(%q) = %v, want %q and no secret", given, err, want)
		}
	}
}
