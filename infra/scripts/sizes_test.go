package scripts

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// sized is usualSize with changes.
func sized(name string, change func(*vmSize)) vmSize {
	s := usualSize(name)
	change(&s)
	return s
}

const (
	first, second = "Standard_D2as_v5", "Standard_D2s_v5"
	oneSize       = "param vmSizes = ['" + first + "']\n"
	twoSizes      = "param vmSizes = ['" + first + "', '" + second + "']\n"
)

// TestDeployChecksSizes: a size that Azure refuses, alone or beside the others, fails before
// anything is made.
func TestDeployChecksSizes(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	other := func(change func(*vmSize)) []vmSize { return []vmSize{usualSize(first), sized(second, change)} }
	one := func(change func(*vmSize)) []vmSize { return []vmSize{sized(first, change)} }
	zones := func(with, without []string) []vmSize {
		return one(func(s *vmSize) { s.Zones, s.Without = with, without })
	}
	const all = "param zones = ['1', '2', '3'] // all\n"
	for _, c := range []struct {
		name, parameters string
		sizes            []vmSize
		want             string // in the output; empty where it deploys
	}{
		{"no such size", oneSize, []vmSize{usualSize("Standard_D2as_v55")}, "westeurope has no VMs of size Standard_D2as_v5"},
		{"restricted", oneSize, one(func(s *vmSize) { s.Restricted = true }), "NotAvailableForSubscription"},
		{"no Spot", oneSize, one(func(s *vmSize) { s.Spot = "" }), "is not offered as Spot"},
		{"another processor", oneSize, one(func(s *vmSize) { s.Processor = "Arm64" }), "has an Arm64 processor and"},
		{"generation 1", oneSize, one(func(s *vmSize) { s.Generations = "V1" }), "has no Trusted Launch"},
		{"without Trusted Launch", oneSize, one(func(s *vmSize) { s.NoTrustedLaunch = "True" }), "has no Trusted Launch"},

		{"all zones", oneSize + all, zones([]string{"3", "1", "2"}, nil), ""},
		{"a region without zones", oneSize + "param zones = ['1']\n", zones(nil, nil), "is not in zone 1 of westeurope"},
		{"a zone that it has not", oneSize + all, zones([]string{"1", "2"}, nil), "is not in zone 3"},
		{"a zone refused", oneSize + all, zones([]string{"1", "2", "3"}, []string{"2"}), "is not in zone 2"},
		{"another zone refused", oneSize + "param zones = ['1', '3']\n", zones([]string{"1", "2", "3"}, []string{"2"}), ""},
		{"no zones asked for", oneSize + "param zones = []\n", zones(nil, []string{"1"}), ""},

		{"a mix", twoSizes, other(func(*vmSize) {}), ""},
		{"one size with NVMe", oneSize, one(func(s *vmSize) { s.Interfaces = "NVMe" }), ""},
		{"one size with a local disk", oneSize, one(func(s *vmSize) { s.Temporary = "76800" }), ""},
		{"a mix with NVMe", twoSizes, other(func(s *vmSize) { s.Interfaces = "NVMe" }), "Standard_D2s_v5 has NVMe: Azure mixes only"},
		{"a mix with both interfaces", twoSizes, other(func(s *vmSize) { s.Interfaces = "SCSI, NVMe" }), ""},
		{"a mix with an interface left out", twoSizes, other(func(s *vmSize) { s.Interfaces = "" }), ""},
		{"three without a common interface", "param vmSizes = ['" + first + "', '" + second + "', 'Standard_D2s_v6']\n", []vmSize{
			sized(first, func(s *vmSize) { s.Interfaces = "SCSI, NVMe" }), sized(second, func(s *vmSize) { s.Interfaces = "SCSI" }),
			sized("Standard_D2s_v6", func(s *vmSize) { s.Interfaces = "NVMe" }),
		}, "Azure mixes only sizes with one disk interface"},
		{"a mix with a temporary disk", twoSizes, other(func(s *vmSize) { s.Temporary = "76800" }),
			"Standard_D2as_v5 has no local disk and Standard_D2s_v5 has a temporary disk"},
		{"a mix with local NVMe disks", twoSizes, other(func(s *vmSize) { s.NVMe = "112640" }), "Standard_D2s_v5 has local NVMe disks"},
		{"a mix with a size without Premium disks", twoSizes, other(func(s *vmSize) { s.Premium = "False" }), "only one takes Premium disks"},

		{"on-demand VMs need no Spot", oneSize + "param onDemand = true\nparam onDemandVmSize = '" + second + "'\n",
			other(func(s *vmSize) { s.Spot, s.Interfaces = "False", "NVMe" }), ""},
		{"on-demand VMs of no size", oneSize + "param onDemand = true\nparam onDemandVmSize = 'Standard_D4s_v5'\n",
			other(func(*vmSize) {}), "no VMs of size Standard_D4s_v5: choose another size (onDemandVmSize in"},
		{"on-demand VMs restricted", oneSize + "param onDemand = true\nparam onDemandVmSize = '" + second + "'\n",
			other(func(s *vmSize) { s.Restricted = true }), "may not have Standard_D2s_v5"},
		{"on-demand VMs outside of a zone", oneSize + all + "param onDemand = true\nparam onDemandVmSize = '" + second + "'\n",
			other(func(s *vmSize) { s.Zones = []string{"1"} }), "Standard_D2s_v5 is not in zone 2"},
		{"on-demand VMs that are off", oneSize + "param onDemand = false\nparam onDemandVmSize = 'Standard_D4s_v5'\n",
			other(func(*vmSize) {}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.sizes(c.sizes...)
			a.ownParameters(c.parameters)
			a.deploysOr(c.want)
		})
	}
}

// TestDeployChecksQuota: VMs beyond the quota of Spot cores or of regular cores fail before
// anything is made.
func TestDeployChecksQuota(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	const onDemand = oneSize + "param onDemand = true\nparam onDemandVmSize = '" + second + "'\n"
	for _, c := range []struct {
		name, parameters, usage, regular, capacity string
		env                                        []string
		want                                       string
	}{
		{"Spot", oneSize, "9 10", "0 0", "", nil, "need a quota of 2 more Spot cores in westeurope, and 1 are left"},
		{"many Spot VMs", oneSize, "0 10", "0 0", "", []string{"CAPACITY=30"}, "need a quota of 60 more Spot cores"},
		{"Spot VMs of a fleet", oneSize + "param spotCapacity = 6\n", "0 10", "0 0", "", nil, "6 VMs of 2 cores need a quota of 12 more Spot"},
		{"the least number of VMs", oneSize + "param minInstances = 6\n", "0 10", "0 0", "", nil, "6 VMs of 2 cores need"},
		{"another number than the least", oneSize + "param capacity = 5\nparam minInstances = 6\n", "0 10", "0 0", "", nil, ""},
		{"enough for Spot VMs", oneSize, "8 10", "0 0", "", nil, ""},
		{"VMs that are there", oneSize, "8 10", "0 0", "3", []string{"CAPACITY=4"}, ""},
		{"regular VMs", oneSize + "param baseRegularCount = 6\n", "0 10", "0 10", "", nil,
			"6 regular VMs need a quota of 12 regular cores in westeurope, and 10 are"},
		{"enough for regular VMs", oneSize + "param baseRegularCount = 5\n", "0 10", "0 10", "", nil, ""},
		{"regular VMs that are there", oneSize + "param baseRegularCount = 6\n", "0 10", "10 10", "8", nil, ""},
		{"a fleet", oneSize + "param regularCapacity = 2\n", "0 10", "8 10", "", nil, "quota of 4 regular cores"},
		{"the first on-demand VM", onDemand, "0 10", "7 10", "", nil, "1 regular VMs need a quota of 4 regular cores"},
		{"enough for an on-demand VM", onDemand, "0 10", "6 10", "", nil, ""},
		{"some on-demand VMs", onDemand + "param onDemandMinInstances = 3\n", "0 10", "0 10", "", nil, "quota of 12 regular cores"},
		{"a number of on-demand VMs", onDemand, "0 10", "0 10", "", []string{"ONDEMAND_CAPACITY=3"}, "quota of 12 regular cores"},
		{"regular and on-demand VMs", onDemand + "param baseRegularCount = 4\n", "0 10", "0 11", "", nil,
			"5 regular VMs need a quota of 12 regular cores"},
		{"on-demand VMs of the Spot size behind a disk", "param diskType = 'Standard_LRS'\n" + oneSize + "param onDemand = true\n",
			"0 10", "9 10", "", nil, "quota of 2 regular cores"},
		{"on-demand VMs of the Spot size", oneSize + "param onDemand = true\n", "0 10", "9 10", "", nil, "quota of 2 regular cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.sizes(usualSize(first), sized(second, func(s *vmSize) { s.Cores = "4" }))
			for name, content := range map[string]string{"usage": c.usage, "regular": c.regular, "capacity": c.capacity} {
				a.write(name, content, 0o600)
			}
			a.write("group", fmt.Sprint(c.capacity != ""), 0o600)
			a.ownParameters(c.parameters)
			a.env = append(a.env, c.env...)
			a.write("heartbeats", "8", 0o600)
			a.deploysOr(c.want)
		})
	}
}

// TestDeployChecksFamilies: regular VMs need the quota of their family, or of one family of a mix.
func TestDeployChecksFamilies(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	const regular, onDemand = "param baseRegularCount = 3\n", "param onDemand = true\nparam onDemandVmSize = '" + second + "'\n"
	for _, c := range []struct{ name, parameters, family, other, want string }{
		{"too few cores", oneSize + regular, "0 5", "", "need a quota of 6 cores of one of the families standardDASv5Family"},
		{"enough", oneSize + regular, "0 6", "", ""},
		{"a mix", twoSizes + regular, "0 5", "0 6", ""},
		{"a mix of too few", twoSizes + regular, "0 5", "0 5", "standardDASv5Family standardDSv5Family in westeurope, and 5 are left at most"},
		{"an on-demand VM of another family", oneSize + onDemand, "0 9", "1 2", "need a quota of 2 cores of family standardDSv5Family"},
		{"enough for an on-demand VM", oneSize + onDemand, "0 0", "0 2", ""},
		{"Spot VMs alone", oneSize, "0 0", "0 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.sizes(usualSize(first), sized(second, func(s *vmSize) { s.Family = otherFamily }))
			a.write("family", c.family, 0o600)
			a.write("otherfamily", c.other, 0o600)
			a.ownParameters(c.parameters)
			a.deploysOr(c.want)
		})
	}
}

// ownParameters deploys a parameter file with this text.
func (a *subscription) ownParameters(text string) {
	a.t.Helper()
	a.write("own.bicepparam", "using 'main.bicep'\n"+text, 0o600)
	a.env = append(a.env, "PARAMETERS="+filepath.Join(a.folder, "own.bicepparam"))
}

// deploysOr deploys; want is a part of the message with which that fails before anything is
// made, or empty.
func (a *subscription) deploysOr(want string) {
	a.t.Helper()
	said, calls, err := a.deploy("--yes")
	if want == "" {
		if err != nil {
			a.t.Errorf("deploy: %v\n%s", err, said)
		}
		return
	}
	if err == nil || !strings.Contains(said, want) || len(changing(calls)) > 0 {
		a.t.Errorf("deploy = %v, made %q, want none and a failure with %q; it said:\n%s", err, changing(calls), want, said)
	}
}

// TestDeployImage: package, sizes and image are for one processor; a parameter file without
// an image has the template's, which is for amd64.
func TestDeployImage(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	const (
		arm     = "param image = { publisher: 'Canonical', offer: 'ubuntu-24_04-lts', sku: 'server-arm64', version: 'latest' }\n"
		amd     = "param image = { publisher: 'Canonical', offer: 'ubuntu-24_04-lts', sku: 'server', version: 'latest' }\n"
		comment = "// sku: 'server-arm64'\n"
	)
	for _, c := range []struct{ name, processor, parameters, want string }{
		{"arm64 without an image", "arm64", oneSize, "give image in"},
		{"arm64 with an image for amd64", "arm64", oneSize + amd, "the sku server-arm64"},
		{"arm64 with its image in a comment", "arm64", oneSize + comment, "the sku server-arm64"},
		{"arm64 with its image", "arm64", oneSize + arm, ""},
		{"amd64 without an image", "amd64", oneSize, ""},
		{"amd64 with its image", "amd64", oneSize + amd, ""},
		{"amd64 with the other image in a comment", "amd64", oneSize + comment, ""},
		{"amd64 with an image for arm64", "amd64", oneSize + arm, "is for arm64: set PACKAGE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE="+c.processor+"\n")
			processor := map[string]string{"arm64": "Arm64", "amd64": "x64"}[c.processor]
			a.sizes(sized(first, func(s *vmSize) { s.Processor = processor }))
			a.ownParameters(c.parameters)
			a.deploysOr(c.want)
		})
	}
}
