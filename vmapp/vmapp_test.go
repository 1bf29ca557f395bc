package vmapp

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/telemetry/monitor"
)

func file(t *testing.T, name string) string {
	t.Helper()
	data, err := Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// setting returns the only value of a unit's setting.
func setting(t *testing.T, unit, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1)
	if len(found) != 1 {
		t.Fatalf("unit has %d lines %s=, want 1", len(found), name)
	}
	return found[0][1]
}

// settings returns the lines of a unit that systemd reads.
func settings(unit string) []string {
	var lines []string
	for line := range strings.Lines(unit) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestUnitsAgree: the template is the unit, except for the settings that tell instances apart.
func TestUnitsAgree(t *testing.T) {
	single, template := settings(file(t, "units/spotworker.service")), settings(file(t, "units/spotworker@.service"))
	if len(single) != len(template) {
		t.Fatalf("spotworker.service has %d lines, spotworker@.service %d, want as many", len(single), len(template))
	}
	tells := map[string]string{
		"Description":    "spotworker %i: jobs from an Azure Storage queue",
		"ExecStart":      "/opt/spotworker/current/bin/worker --instance=%i",
		"StandardOutput": "append:/var/log/spotworker/worker-%i.log",
		"StandardError":  "append:/var/log/spotworker/worker-%i.log",
	}
	for i, want := range single {
		name, _, _ := strings.Cut(want, "=")
		if value, ok := tells[name]; ok {
			want = name + "=" + value
		}
		if template[i] != want {
			t.Errorf("spotworker@.service has %q, want %q", template[i], want)
		}
	}
}

// TestUnitKeepsItsWord compares the unit with the worker and its documents.
func TestUnitKeepsItsWord(t *testing.T) {
	unit := file(t, "units/spotworker.service")
	for name, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "Restart": "always", "KillMode": "mixed", "OOMPolicy": "continue",
		"RestartPreventExitStatus": fmt.Sprint(cli.ExitConfig), "StartLimitIntervalSec": "0",
		"PrivateIPC": "yes", "PrivateTmp": "yes", "TemporaryFileSystem": "/dev/shm:mode=1777,nosuid,nodev",
		"RuntimeDirectory": "spotworker", "RuntimeDirectoryPreserve": "yes", "User": "spotworker",
		"After": "network-online.target spotworker-logs.service", "Wants": "network-online.target spotworker-logs.service",
		"WantedBy": "multi-user.target",
	} {
		if got := setting(t, unit, name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if want := "SystemCallFilter=~@privileged @keyring\n"; !strings.Contains(unit, want) {
		t.Errorf("unit does not have %s", want)
	}
	const defaultDrainBudget = 10 * time.Second
	for name, least := range map[string]time.Duration{"TimeoutStopSec": defaultDrainBudget + 10*time.Second, "WatchdogSec": 30 * time.Second} {
		if got, err := time.ParseDuration(setting(t, unit, name)); err != nil || got < least {
			t.Errorf("%s=%s (%v), want at least %s", name, got, err, least)
		}
	}
}

// TestScriptsAgree: there are as many instances as a VM may have, and every file
// that a script reads is in the package.
func TestScriptsAgree(t *testing.T) {
	if got, want := len(regexp.MustCompile(`spotworker@\d`).FindAllString(file(t, "scripts/lib.sh"), -1)), vmshare.MaxWorkers; got != want {
		t.Errorf("lib.sh knows %d instances, want %d", got, want)
	}
	for n := range vmshare.MaxWorkers {
		if unit := fmt.Sprintf("spotworker@%d.service", n); !strings.Contains(file(t, "scripts/check.sh"), unit) {
			t.Errorf("check.sh does not know %s", unit)
		}
	}
	sourced := regexp.MustCompile(`(?m)^\. \./([a-z]+\.sh)$`)
	for _, script := range []string{"install.sh", "update.sh", "remove.sh"} {
		for _, found := range sourced.FindAllStringSubmatch(file(t, "scripts/"+script), -1) {
			file(t, "scripts/"+found[1])
		}
	}
}

// TestConfigurationEndsAlike: the deployment, cloud-init and the scripts mean the
// same last line.
func TestConfigurationEndsAlike(t *testing.T) {
	found := regexp.MustCompile(`(?m)^LAST_LINE='(.*)'$`).FindStringSubmatch(file(t, "scripts/check.sh"))
	if found == nil {
		t.Fatal("check.sh has no LAST_LINE")
	}
	foundation, err := os.ReadFile(filepath.Join("..", "infra", "bicep", "modules", "foundation.bicep"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "var lastLine = '" + found[1] + "'\n"; !strings.Contains(string(foundation), want) {
		t.Errorf("foundation.bicep does not have %s", want)
	}
	if want := found[1] + "\n      END\n"; !strings.Contains(CloudInit, want) {
		t.Errorf("cloud-init.yaml does not end worker.env with %s", found[1])
	}
}

// TestDeploymentAgrees compares infra/bicep with the content of a package.
func TestDeploymentAgrees(t *testing.T) {
	bicep := func(name string) string {
		data, err := os.ReadFile(filepath.Join("..", "infra", "bicep", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	quoted := func(name, value string) string { return name + ": '" + strings.ReplaceAll(value, "'", `\'`) + "'\n" }
	for _, name := range []string{"main.bicep", "fleet.bicep", "single.bicep"} {
		source := bicep(name)
		wanted := []string{quoted("install", Install), quoted("update", Update), quoted("remove", Remove)}
		if name != "single.bicep" { // nothing probes the health of a single VM
			wanted = append(wanted, fmt.Sprintf("param healthPort int = %d\n", monitor.BasePort))
		}
		for _, want := range wanted {
			if !strings.Contains(source, want) {
				t.Errorf("%s does not have %s", name, want)
			}
		}
		pattern := regexp.MustCompile(`param logFiles string\[\] = \['(.*)'\]`).FindStringSubmatch(source)
		if pattern == nil {
			t.Fatalf("%s has no logFiles", name)
		}
		for _, unit := range []string{"spotworker.service", "spotworker@.service"} {
			log := strings.TrimPrefix(setting(t, file(t, "units/"+unit), "StandardError"), "append:")
			if matches, err := path.Match(pattern[1], log); err != nil || !matches {
				t.Errorf("%s collects %s, and %s writes %s", name, pattern[1], unit, log)
			}
		}
	}
	if want := quoted("configFileName", ConfigurationFile); !strings.Contains(bicep("modules/application-version.bicep"), want) {
		t.Errorf("application-version.bicep does not have %s", want)
	}
	name, isTarball := strings.CutSuffix(PackageFile, ".tar.gz")
	want := "var packageSuffix = operatingSystem == 'Windows' ? '.zip' : '.tar.gz'\nvar packageName = '" + name + "${packageSuffix}'\n"
	if !isTarball || !strings.Contains(bicep("modules/foundation.bicep"), want) {
		t.Errorf("foundation.bicep does not have %s", want)
	}
}

// TestFirewallBlocksThePlatform: both addresses that give a VM's secrets away, and the port of the
// agent that takes connections to them under the Metadata Security Protocol, with nft and with iptables.
func TestFirewallBlocksThePlatform(t *testing.T) {
	for _, way := range []string{"nft", "iptables"} {
		tools := t.TempDir()
		calls := filepath.Join(tools, "calls")
		script := "#!/bin/sh\necho \"$*\" >>" + calls + "\ncase $*$PATH in -f*) cat >>" + calls + " ;; *-D*) exit 1 ;; esac\n"
		if err := os.WriteFile(filepath.Join(tools, way), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		cat, err := exec.LookPath("cat")
		if err == nil {
			err = os.Symlink(cat, filepath.Join(tools, "cat"))
		}
		if err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "/bin/sh", "scripts/firewall.sh", "up")
		command.Env = []string{"PATH=" + tools, "SPOTWORKER_PROGRAM_USERS=70001-70100"}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", way, err, out)
		}
		made, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		rules := map[string][]string{
			"nft": {
				"meta skuid 70001-70100 ip daddr 169.254.169.254 reject", "meta skuid 70001-70100 ip daddr 168.63.129.16 reject",
				"meta skuid 70001-70100 ip daddr 127.0.0.1 tcp dport 3080 reject",
			},
			"iptables": {
				"-d 169.254.169.254 -m owner --uid-owner 70001-70100 -j REJECT", "-d 168.63.129.16 -m owner --uid-owner 70001-70100 -j REJECT",
				"-d 127.0.0.1 -p tcp --dport 3080 -m owner --uid-owner 70001-70100 -j REJECT",
			},
		}
		for _, rule := range rules[way] {
			if !strings.Contains(string(made), rule+"\n") {
				t.Errorf("%s: no rule %q in\n%s", way, rule, made)
			}
		}
	}
}

// TestSnapshotsLiftFilters: the drop-in resets each setting of the unit that makes a system call
// filter, or a mount over /proc, and no other. The names are of exec_context_has_seccomp in
// systemd.
func TestSnapshotsLiftFilters(t *testing.T) {
	unit, dropIn := file(t, "units/spotworker.service"), file(t, "etc/spotworker-snapshots.conf")
	filters := []string{
		"SystemCallFilter", "SystemCallArchitectures", "RestrictNamespaces", "RestrictAddressFamilies", "RestrictRealtime", "RestrictSUIDSGID",
		"LockPersonality", "MemoryDenyWriteExecute", "ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
		"ProtectKernelTunables", "PrivateDevices", "SystemCallLog", "ProtectProc",
	}
	lifted := map[string]bool{}
	for _, line := range settings(dropIn)[1:] {
		name, value, _ := strings.Cut(line, "=")
		switch {
		case name == "DevicePolicy" && value == "closed": // in the place of PrivateDevices
		case value != "" && value != "no" && value != "default":
			t.Errorf("%s lifts nothing", line)
		default:
			lifted[name] = true
		}
	}
	for _, name := range filters {
		if has := strings.Contains(unit, "\n"+name+"="); has != lifted[name] {
			t.Errorf("the unit has %s: %t, and the drop-in lifts it: %t", name, has, lifted[name])
		}
		delete(lifted, name)
	}
	if len(lifted) > 0 {
		t.Errorf("the drop-in lifts %v, which makes no filter", lifted)
	}
}
