package workercmd

import (
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// reboot announces a reboot of those VMs that a person asked for.
func (c *cloud) reboot(vms ...string) (id string) {
	return c.metadata.Schedule(imds.Event{Type: "Reboot", Resources: vms, Source: "User", NotBefore: time.Now().Add(15 * time.Minute),
		Duration: -time.Second})
}
