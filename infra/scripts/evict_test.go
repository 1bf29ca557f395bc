package scripts

import (
	"fmt"
	"strings"
	"testing"
)

// TestEvictKeepsThePrefix: it looks for VMs of the deployment of the parameter file.
func TestEvictKeepsThePrefix(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("vm", "spotworker-win-spot_0a1b2c3d\n", 0o600)
	a.env = []string{"PARAMETERS=infra/bicep/windows.bicepparam"}
	said, calls, err := a.run("deploy-evict.sh")
	if err != nil || !strings.Contains(calls[0], "starts_with(name, 'spotworker-win-')") {
		t.Errorf("evict = %v after %q, want VMs of spotworker-win; it said:\n%s", err, calls, said)
	}
}

func TestEvict(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	const evicts = "vm simulate-eviction --resource-group spotworker --name "
	for _, c := range []struct{ name, running, argument, want string }{
		{"one that runs", "spotworker-spot_0a1b2c3d\n", "", "spotworker-spot_0a1b2c3d"},
		{"a certain one", "spotworker-spot_0a1b2c3d\n", "spotworker-spot_11111111", "spotworker-spot_11111111"},
		{"none there", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.write("vm", c.running, 0o600)
			said, calls, err := a.run("deploy-evict.sh", strings.Fields(c.argument)...)
			evicted := strings.Contains(calls[len(calls)-1], evicts+c.want)
			if c.want == "" {
				if err == nil || strings.Contains(strings.Join(calls, "\n"), evicts) {
					t.Errorf("evict = %v after %q, want an error and no eviction", err, calls)
				}
				return
			}
			asked := strings.Join(calls, "\n")
			if c.argument == "" && !(strings.Contains(asked, "priority=='Spot' || priority=='SpotPlus'") &&
				strings.Contains(asked, "powerState=='VM running'")) {
				t.Errorf("evict asked %q, want VMs of either Spot priority that run", calls)
			}
			if err != nil || !evicted || !strings.Contains(said, "$ az "+evicts+c.want+"\n") {
				t.Errorf("evict = %v after %q, want %s evicted; it said:\n%s", err, calls, c.want, said)
			}
		})
	}
}

// TestEvictWhileVMsGo: a list that fails while a VM goes is asked for again, three times in all.
func TestEvictWhileVMsGo(t *testing.T) {
	t.Parallel()
	for failures, evicted := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		a := newSubscription(t)
		a.write("vm", "spotworker-spot_0a1b2c3d\n", 0o600)
		for i := range failures {
			a.write(fmt.Sprint("gone", i), "", 0o600)
		}
		said, calls, err := a.run("deploy-evict.sh")
		all := strings.Join(calls, "\n")
		if (err == nil) != evicted || strings.Contains(all, "simulate-eviction") != evicted ||
			strings.Count(all, "vm list") != min(failures+1, 3) {
			t.Errorf("evict after %d failures = %v after %q, want an eviction %v, and three lists at most; it said:\n%s",
				failures, err, calls, evicted, said)
		}
		if strings.Contains(said, "no Spot VM") {
			t.Errorf("evict after %d failures says that no VM runs:\n%s", failures, said)
		}
	}
}
