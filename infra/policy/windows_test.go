package policy

import (
	"regexp"

	"github.com/spotworker/spotworker/vmapp"
)

// windowsPrefixLimit is how long the prefix of computer names may be: Windows has 15
// characters at most, and a Flexible scale set adds six.
const windowsPrefixLimit = 9

// windowsPrefix is a name that a scale set gives its computers.
var windowsPrefix = regexp.MustCompile(`vm\.windowsProfile\('([^']*)'`)

// checkWindows: on Windows the package's own commands, and names that Windows takes.
func checkWindows(d deployment, tell report) {
	prefixes := 0
	for path, f := range d {
		for _, call := range windowsPrefix.FindAllStringSubmatch(f.source, -1) {
			prefixes++
			if len(call[1]) > windowsPrefixLimit {
				tell(path, 0, "computers would be called %s and six characters, and Windows takes %d before them", call[1], windowsPrefixLimit)
			}
		}
	}
	if prefixes != 2 {
		tell("modules/vm.bicep", 0, "%d scale sets name computers that run Windows, want 2", prefixes)
	}
	for _, p := range d["main.bicep"].Params {
		if p.Name != "windowsPackageCommands" {
			continue
		}
		for name, want := range map[string]string{"install": vmapp.WindowsInstall, "update": vmapp.WindowsUpdate,
			"remove": vmapp.WindowsRemove} {
			if got := text(at(p.Default, name)); got != "'"+want+"'" {
				tell("main.bicep", p.Line, "command %s is %q, want the package's, %q", name, got, want)
			}
		}
	}
}
