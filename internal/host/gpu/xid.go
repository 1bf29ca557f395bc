package gpu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// unusable are the errors after which a GPU must not be used before it is reset or its VM is gone, by
// NVIDIA's Xid catalog: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Among them are
// memory errors (48, 64, 95, 140), NVLink (74), a GPU off the bus (79) and its firmware (119, 120).
var unusable = []string{"46", "48", "62", "64", "74", "79", "95", "119", "120", "140", "143"}

// recovery is the Xid of a changed need for a reset. Without any its text ends in "to 0x0 (None)".
const recovery = "154"

var xidLine = lazyregexp.New(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F:]+)\): ([0-9]+), *([^\n]*)`)

// openKernelLog opens the kernel's log from now on, nil if it cannot be read: that takes CAP_SYSLOG where
// kernel.dmesg_restrict is set, and nvidia-smi alone is asked without it.
func openKernelLog(name string) *os.File {
	file, _ := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if _, err := file.Seek(0, io.SeekEnd); err != nil { // also of none
		_ = file.Close()
		return nil
	}
	return file
}

// takeXids takes out the GPUs that the kernel has reported since it was last called. The caller holds
// the lock.
func (p *Pool) takeXids() {
	for record := make([]byte, 8<<10); ; {
		_ = p.kernel.SetReadDeadline(time.Now().Add(time.Millisecond)) // it waits for a record otherwise
		n, err := p.kernel.Read(record)
		if n <= 0 && !errors.Is(err, syscall.EPIPE) { // records were overwritten; others follow
			return
		}
		for _, xid := range xidLine().FindAllStringSubmatch(string(record[:max(n, 0)]), -1) {
			fault := fmt.Sprintf("the kernel reports Xid %s: %s", xid[2], short(xid[3]))
			if xid[2] == recovery && strings.Contains(xid[3], "to 0x0") {
				fault = ""
			} else if xid[2] != recovery && !slices.Contains(unusable, xid[2]) {
				continue
			}
			for _, d := range p.devices {
				if d.place != nil && strings.EqualFold(d.place.pci, xid[1]) && d.xid != fault {
					d.xid = fault
					p.set(d, fault) // without one the next look has the last word
				}
			}
		}
	}
}
