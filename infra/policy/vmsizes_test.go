package policy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// sizeFacts are the properties of a VM size on which a mix, an image and Spot depend.
type sizeFacts struct {
	cores      int
	processor  string // of image and package too
	disk       string // disk interface
	local      string // kind of local disk, or none
	spot       bool
	trusted    bool // images of generation 2, with Trusted Launch
	zonal      bool // in the zones of regions that have zones
	gibibytes  int  // memory
	seriesPage string
}

const sizePages = "virtual-machines/sizes/"

// vmSizes has every size that templates and parameter files name. Pages are on
// learn.microsoft.com/azure.
var vmSizes = map[string]sizeFacts{
	"Standard_D2as_v5":  {2, "x64", "SCSI", "none", true, true, true, 8, sizePages + "general-purpose/dasv5-series"},
	"Standard_D4as_v5":  {4, "x64", "SCSI", "none", true, true, true, 16, sizePages + "general-purpose/dasv5-series"},
	"Standard_D2ads_v5": {2, "x64", "SCSI", "temporary", true, true, true, 8, sizePages + "general-purpose/dadsv5-series"},
	"Standard_D2s_v5":   {2, "x64", "SCSI", "none", true, true, true, 8, sizePages + "general-purpose/dsv5-series"},
	"Standard_D4s_v5":   {4, "x64", "SCSI", "none", true, true, true, 16, sizePages + "general-purpose/dsv5-series"},
	"Standard_D2ds_v5":  {2, "x64", "SCSI", "temporary", true, true, true, 8, sizePages + "general-purpose/ddsv5-series"},
	"Standard_D2s_v4":   {2, "x64", "SCSI", "none", true, true, true, 8, sizePages + "general-purpose/dsv4-series"},
	"Standard_E2as_v5":  {2, "x64", "SCSI", "none", true, true, true, 16, sizePages + "memory-optimized/easv5-series"},
	"Standard_E2s_v5":   {2, "x64", "SCSI", "none", true, true, true, 16, sizePages + "memory-optimized/esv5-series"},
}

// sizeForm is a size in a list. Kinds of disks begin alike.
var sizeForm = regexp.MustCompile(`'(Standard_[A-Z][A-Za-z0-9-]*\d[A-Za-z0-9_-]*)'`)

// takesPremium reports whether a size takes Premium disks: its features, behind the number of cores,
// have an s.
func takesPremium(size string) bool {
	_, name, _ := strings.Cut(size, "_")
	name, _, _ = strings.Cut(name, "_")
	return strings.Contains(strings.TrimLeft(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "0123456789"), "s")
}

// checkMixes: every size is known, is offered as Spot and starts with Trusted Launch. The
// sizes of a file have one kind of processor and as many cores; in a scale set also one
// disk interface and one kind of local disk. A fleet makes each VM by itself.
func checkMixes(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(name, "modules/") {
			continue
		}
		fleet := name == "fleet.bicep" || strings.Contains(d[name].source, "using 'fleet.bicep'")
		windows := strings.Contains(d[name].source, "param operatingSystem = 'Windows'")
		first := ""
		for _, m := range sizeForm.FindAllStringSubmatch(d[name].source, -1) {
			size, known := vmSizes[m[1]]
			switch {
			case !known:
				tell(name, 0, "%s is not in the table of sizes: add it with its source", m[1])
				continue
			case !size.spot:
				tell(name, 0, "%s is not offered as Spot (%s)", m[1], size.seriesPage)
			case !size.trusted:
				tell(name, 0, "%s has no Trusted Launch (%s)", m[1], size.seriesPage)
			case !size.zonal && strings.Contains(d[name].source, "param zones = ['"):
				tell(name, 0, "%s is in no zones (%s)", m[1], size.seriesPage)
			case windows && size.gibibytes < 16:
				tell(name, 0, "%s has %d GiB, and Windows needs 4 GiB for itself", m[1], size.gibibytes)
			}
			if first == "" {
				first = m[1]
			}
			before := vmSizes[first]
			if size.processor != before.processor || size.cores != before.cores {
				tell(name, 0, "%s has another processor or number of cores than %s (%s)", m[1], first, mixPage)
			}
			if takesPremium(m[1]) != takesPremium(first) {
				tell(name, 0, "of %s and %s only one takes Premium disks (%s)", m[1], first, mixPage)
			}
			if !fleet && (size.disk != before.disk || size.local != before.local) {
				tell(name, 0, "%s has another disk interface or local disk than %s (%s)", m[1], first, mixPage)
			}
		}
	}
}

// images are images of generation 2 that start with Trusted Launch, and their processor.
// Images of generation 1 have names that end in gen1 or, of old offers, in no generation.
var images = map[[3]string]string{
	{"Canonical", "ubuntu-24_04-lts", "server"}:                                                 "x64",
	{"Canonical", "ubuntu-24_04-lts", "server-arm64"}:                                           "Arm64",
	{"MicrosoftWindowsServer", "WindowsServer", "2022-datacenter-azure-edition-core"}:           "x64",
	{"MicrosoftWindowsServer", "WindowsServer", "2022-datacenter-azure-edition-core-smalldisk"}: "x64",
}

// checkImages: each image is of generation 2, for the processor of the file's sizes, and of
// its system; zones are those that a region has.
func checkImages(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		for _, p := range d[name].Params {
			v := p.Default
			if v == nil {
				v = p.Value
			}
			switch {
			case (p.Name == "image" || p.Name == "windowsImage") && v != nil:
				var parts [3]string
				for i, key := range []string{"publisher", "offer", "sku"} {
					parts[i], _ = at(v, key).(string)
				}
				processor, known := images[parts]
				if !known || at(v, "version") != "latest" {
					tell(name, p.Line, "%s is %v of version %s, want the latest of an image of generation 2 (%s)", p.Name, parts,
						text(at(v, "version")), trustedPage)
				}
				if ofWindows := parts[0] == "MicrosoftWindowsServer"; ofWindows != (p.Name == "windowsImage") {
					tell(name, p.Line, "%s is of the other system", p.Name)
				}
				for _, m := range sizeForm.FindAllStringSubmatch(d[name].source, -1) {
					if size, ok := vmSizes[m[1]]; ok && known && size.processor != processor {
						tell(name, p.Line, "%s is for %s, and %s has %s", p.Name, processor, m[1], size.processor)
					}
				}
			case p.Name == "zones" && v != nil:
				list, _ := v.([]any)
				seen := map[any]bool{}
				for _, zone := range list {
					if !slices.Contains([]any{"1", "2", "3"}, zone) || seen[zone] {
						tell(name, p.Line, "zone %s: a region has 1, 2 and 3, each once", text(zone))
					}
					seen[zone] = true
				}
			}
		}
	}
}
