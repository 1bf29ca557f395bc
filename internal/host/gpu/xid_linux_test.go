package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestXid: a GPU that the kernel's log reports as unusable gets no more jobs, until the log says that it
// needs no reset. What was logged before the worker's start, and faults of programs, change nothing.
func TestXid(t *testing.T) {
	m := newMachine(t, "dev/nvidia0", "dev/nvidia1")
	m.driver("0001:00:00.0", "GPU-a", 0, "128")
	m.driver("000a:00:00.0", "GPU-b", 1, "129")
	all := "4,1,1,-;NVRM: Xid (PCI:0001:00:00): 79, GPU has fallen off the bus.\n"
	m.write("dev/kmsg", all, 0o600)
	p := m.pool()
	for _, row := range []struct{ lines, want string }{
		{"", ""},
		{"4,2,2,-;NVRM: Xid (PCI:000A:00:00): 31, pid=7, name=python3, MMU Fault\n4,3,3,-;usb 1-1: new device\n", ""},
		{"4,4,4,-;NVRM: Xid (PCI:00ff:00:00): 79, GPU has fallen off the bus.\n", ""},
		{"4,5,5,-;NVRM: Xid (PCI:000A:00:00): 79, GPU has fallen off the bus.\n", "1: the kernel reports Xid 79: GPU has fallen off the bus."},
		{"", "1: the kernel reports Xid 79"},
		{"4,6,6,-;NVRM: Xid (PCI:000A:00:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n", ""},
		{"4,7,7,-;NVRM: Xid (0001:00:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n",
			"0: the kernel reports Xid 154: GPU recovery"},
	} {
		all += row.lines
		if err := os.WriteFile(filepath.Join(m.dir, "dev/kmsg"), []byte(all), 0o600); err != nil { // the same file, longer
			t.Fatal(err)
		}
		release, _, err := p.Reserve("a", 2)
		if got := p.Faults(); !strings.HasPrefix(got, row.want) || row.want == "" && got != "" || (err == nil) != (row.want == "") {
			t.Errorf("after %q: broken = %q, Reserve = %v, want %q", row.lines, got, err, row.want)
		}
		if release != nil {
			release()
		}
		if p.check(t.Context()); !strings.HasPrefix(p.Faults(), row.want) {
			t.Errorf("at the next look after %q: broken = %q, want %q", row.lines, p.Faults(), row.want)
		}
	}
}
