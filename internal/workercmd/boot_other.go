//go:build !windows

package workercmd

import (
	"os"
	"strings"
)

// bootID returns the id of this boot of the machine, empty where there is none
// (only Linux has one).
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
