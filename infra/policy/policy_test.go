package policy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// TestDeployment holds the committed files to the rules.
func TestDeployment(t *testing.T) {
	for _, f := range judge(committed(t)) {
		t.Error(f)
	}
}

// brokenCopies are mistakes that the checks must find. Each is one edit of one file, and
// the check that must fail for it: a rule, or the checker itself.
var brokenCopies = []struct {
	name           string
	file, old, new string
	want           string
}{
	{"a misspelt property", "modules/spot-scale-set.bicep", "evictionPolicy: evictionPolicy", "evictionpolicy: evictionPolicy", checker},
	{"a misspelt property in a function", "modules/vm.bicep", "createOption: 'FromImage'", "createOptions: 'FromImage'", checker},
	{"a wrong enum", "modules/spot-scale-set.bicep", "'Flexible'", "'Flexibel'", checker},
	{"a parameter that is not passed on", "main.bicep", "    zones: zones\n", "", checker},
	{"a missing role", "modules/worker-roles.bicep", "  for role in [roles.queueDataMessageSender, roles.queueDataReader]: {",
		"  for role in [roles.queueDataReader]: {", "roles"},
	{"a role on the whole account", "modules/worker-roles.bicep", "    scope: account::queueService::jobs[i]\n", "    scope: account\n",
		"roles"},
	{"a wider role", "modules/operator-roles.bicep", "roles.blobDataReader)\n  }", "roles.blobDataContributor)\n  }", "roles"},
	{"a wrong role id", "modules/types.bicep", "c6a89b2d-59bc", "c6a89b2e-59bc", "roles"},
	{"a public blob", "modules/storage.bicep", "allowBlobPublicAccess: false", "allowBlobPublicAccess: true", "storage"},
	{"a public container", "modules/storage.bicep", "publicAccess: 'None'", "publicAccess: 'Blob'", "storage"},
	{"a shared key", "modules/storage.bicep", "allowSharedKeyAccess: false", "allowSharedKeyAccess: true", "storage"},
	{"a copy of every save", "modules/storage.bicep", "isVersioningEnabled: false", "isVersioningEnabled: true", "storage"},
	{"an account that is open", "modules/storage.bicep", "firewall ? 'Deny' : 'Allow'", "firewall ? 'Allow' : 'Deny'", "storage"},
	{"a firewall that is off", "main.bicep", "param storageFirewall bool = true", "param storageFirewall bool = false", "storage access"},
	{"VMs outside of the firewall", "modules/foundation.bicep", "concat([network.outputs.subnetId], otherSubnets)", "otherSubnets",
		"storage access"},
	{"an operator outside of the firewall", "modules/foundation.bicep", "    addresses: operatorAddresses\n", "    addresses: []\n",
		"storage access"},
	{"a subnet without its endpoint", "modules/network.bicep", "serviceEndpoints: [{ service: remoteStorage",
		"serviceEndpoints: [{ service: !remoteStorage", "storage access"},
	{"writes that are not logged", "modules/storage-log.bicep", "      { category: 'StorageWrite', enabled: true }\n", "",
		"storage access"},
	{"a log that is off", "modules/foundation.bicep", "if (collects && logStorage && ownsAccount)",
		"if (collects && !logStorage && ownsAccount)", "storage access"},
	{"a key in an output", "modules/storage.bicep", "= account.id\n", "= account.listKeys().keys[0].value\n", "secrets"},
	{"a secret setting", "modules/vm.bicep", "    autoUpgradeMinorVersion: true\n    settings: {\n      protocol",
		"    autoUpgradeMinorVersion: true\n    protectedSettings: { key: 'x' }\n    settings: {\n      protocol", "secrets"},
	{"no price", "modules/spot-scale-set.bicep", "    billingProfile: { maxPrice: json(maxPrice) }\n", "", "eviction"},
	{"a fleet that is not maintained", "modules/fleet.bicep", "maintain: true", "maintain: false", "eviction"},
	{"a fleet without a floor", "modules/fleet.bicep", "minCapacity: regularCapacity", "minCapacity: 0", "eviction"},
	{"a scale-in without notice", "modules/regular-scale-set.bicep", "terminateNotificationProfile: {\n          enable: true",
		"terminateNotificationProfile: {\n          enable: false", "eviction"},
	{"records that go too soon", "main.bicep", "records: 30", "records: 3", "retention"},
	{"data that goes by age", "modules/storage.bicep", "container: names.workers, days", "container: dataContainers[0].name, days",
		"retention"},
	{"an age of the wrong thing", "modules/storage.bicep", "days: retention.payloads", "days: retention.workers", "retention"},
	{"an alert without receivers", "modules/foundation.bicep", "    tableName: log!.outputs.tableName\n    actionGroupIds: actionGroupIds",
		"    tableName: log!.outputs.tableName\n    actionGroupIds: []", "alerts"},
	{"an eviction alert without receivers", "modules/eviction-alert.bicep", "[for id in actionGroupIds: { actionGroupId: id }]", "[]",
		"alerts"},
	{"VMs before their roles", "modules/foundation.bicep", "string = workerRoles.outputs.identityId",
		"string = identities.outputs.worker.id",
		"roles first"},
	{"a random name", "modules/gallery-roles.bicep",
		"  name: guid(account::blobService::packages.id, principalId, roles.blobDataContributor)", "  name: principalId", "assignment names"},
	{"another account to measure", "modules/autoscale.bicep", "  name: accountName\n", "  name: scaleSetName\n", "resource names"},
	{"as many VMs less as there may be", "modules/autoscale.bicep", "      value: '1'\n", "      value: string(maxInstances)\n",
		"directions"},
	{"another queue", "modules/foundation.bicep", "'${prefix}-jobs-poison'", "'${prefix}-jobs-dead'", "names"},
	{"a place of its own", "modules/network.bicep", "  name: '${prefix}-network'\n  location: location",
		"  name: '${prefix}-network'\n  location: resourceGroup().location", "locations"},
	{"a module left out", "modules/foundation.bicep", "module evictionAlert 'eviction-alert.bicep'",
		"module evictionAlert 'no-workers-alert.bicep'",
		"wired"},
	{"two modules under one name", "modules/foundation.bicep", "name: '${prefix}-gallery'", "name: '${prefix}-network'", "wired"},
	{"a parameter without a word", "modules/network.bicep", "@description('Start of the names.')\n", "", "described"},
	{"an open port", "modules/network.bicep", "access: 'Deny'", "access: 'Allow'", "network"},
	{"a subnet that goes out by default", "modules/network.bicep", "          defaultOutboundAccess: false\n", "", "network"},
	{"a restore that autoscale rules out", "main.bicep", "restore: restoreEvicted && !autoscale", "restore: restoreEvicted", "scaling"},
	{"autoscale that never scales", "main.bicep", "if (stage == 'Workers' && scales)", "if (stage == 'Workers' && autoscale)", "scaling"},
	{"a count of yesterday", "modules/autoscale.bicep", "'ApproximateMessageCount'", "'QueueMessageCount'", "scaling"},
	{"probes too close", "modules/vm.bicep", "intervalInSeconds: 10", "intervalInSeconds: 2", "limits"},
	{"a function that is not known there", "modules/monitoring.bicep", "iif(isnotnull([\\'time\\']), ", "coalesce(", "transformations"},
	{"a version of this month", "modules/gallery.bicep", "'Microsoft.Compute/galleries@2025-03-03' =",
		"'Microsoft.Compute/galleries@2025-12-03' =", "versions"},
	{"a name for an account", "modules/foundation.bicep", "SPOTWORKER_ACCOUNT: accountName", "SPOTWORKER_ACCOUNT: prefix", "settings"},
	{"a further region with other accounts", "modules/foundation.bicep", "    prefix: checkedPrefix\n", "    prefix: prefix\n",
		"handed down"},
	{"another one's package", "main.bicep", "packageId: foundation.outputs.onDemandPackageId", "packageId: foundation.outputs.packageId",
		"handed down"},
	{"a queue twice", "modules/storage.bicep", "concat(names.jobs, [names.onDemand, names.poison])",
		"concat(names.jobs, [names.queue, names.poison])", "names"},
	{"a container twice", "modules/storage.bicep", "[names.records, names.payloads, names.outputs],",
		"[names.records, names.payloads, names.payloads],", "resources"},
	{"a look less often than its window", "modules/no-workers-alert.bicep", "    evaluationFrequency: 'PT5M'\n    windowSize: 'PT6H'\n",
		"    evaluationFrequency: 'PT6H'\n    windowSize: 'PT5M'\n", "alert times"},
	{"up and up", "modules/autoscale.bicep", "direction: 'Decrease'", "direction: 'Increase'", "directions"},
	{"a time without an end", "modules/autoscale.bicep", "days: time.end.days", "days: time.begin.days", "times"},
	{"an end that is not known as the usual time", "modules/autoscale.bicep", "string({ name: 'queue depth', for: time.name })",
		"'after ${time.name}'", "times"},
	{"times without autoscale", "main.bicep", "!autoscale && !empty(times) ? fail(", "!autoscale && !empty(names) ? fail(", "times"},
	{"times that are not handed down", "main.bicep", "    times: scaleTimes\n", "    times: []\n", "times"},
	{"rules without a VM", "modules/autoscale.bicep", "rules: time.maxInstances == 0 ? [] : rules", "rules: rules", "times"},
	{"names too long", "single.bicep", "@maxLength(30)\nparam prefix", "@maxLength(60)\nparam prefix", "name lengths"},
	{"two kinds of processor", "production.bicepparam", "'Standard_D2s_v4'", "'Standard_D2pds_v5'", "mixes"},
	{"a size with a local disk in a mix", "production.bicepparam", "'Standard_D2s_v4'", "'Standard_D2ds_v5'", "mixes"},
	{"a size with another disk interface", "production.bicepparam", "'Standard_D2s_v4'", "'Standard_D2s_v6'", "mixes"},
	{"a larger size in a mix", "production.bicepparam", "'Standard_D2s_v4'", "'Standard_D4s_v5'", "mixes"},
	{"an image of generation 1", "main.bicep", "  sku: 'server'\n", "  sku: 'server-gen1'\n", "images"},
	{"a zone that no region has", "production.bicepparam", "['1', '2', '3']", "['1', '2', '4']", "images"},
	{"two kinds of workers with one identity", "modules/identities.bicep", "'${prefix}-ondemand-worker'", "'${prefix}-worker'",
		"identities"},
	{"a gallery with the workers' identity", "modules/identities.bicep", "'${prefix}-gallery'", "'${prefix}-worker'", "identities"},
	{"the subnet for an identity", "modules/spot-scale-set.bicep", "{ '${identityId}': {} }", "{ '${subnetId}': {} }", "identities"},
	{"a name from another queue", "modules/worker-roles.bicep", "guid(account::queueService::poison.id,",
		"guid(account::queueService::onDemand.id,",
		"guids"},
	{"probes for longer than the grace", "modules/vm.bicep", "intervalInSeconds: 10\n      numberOfProbes: 6",
		"intervalInSeconds: 60\n      numberOfProbes: 24", "products"},
	{"a batch above what may be unhealthy", "modules/regular-scale-set.bicep", "maxBatchInstancePercent: 20", "maxBatchInstancePercent: 40",
		"products"},
	{"more regular VMs than VMs", "production.bicepparam", "param baseRegularCount = 2", "param baseRegularCount = 20", "numbers"},
	{"a network without room", "fleet.bicep", "10.42.0.0/22", "10.42.0.0/27", "numbers"},
	{"metrics for the log's endpoint", "modules/metrics.bicep", "metricsIngestion.endpoint", "logsIngestion.endpoint", "metrics push"},
	{"a version of remote write that there is not", "modules/metrics.bicep", "api-version=2023-04-24", "api-version=2023-01-01",
		"metrics push"},
	{"a depth times its readings", "modules/autoscale.bicep", "timeAggregation: 'Average'", "timeAggregation: 'Total'", "limits"},
	{"a number of readings for the depth", "modules/autoscale.bicep", "statistic: 'Average'", "statistic: 'Count'", "limits"},
	{"a version that does not know SpotPlus", "modules/spot-plus.bicep", "@2026-04-01'", "@2025-04-01'", "versions"},
	{"a role for a kind of principal that Azure guesses", "modules/gallery-roles.bicep", "    principalType: 'ServicePrincipal'\n", "",
		"properties"},
	{"a resource without tags", "modules/identities.bicep", "  tags: tags\n", "", "properties"},
	{"logs where there is no gateway", "modules/foundation.bicep", "monitoring && outbound == 'NatGateway'",
		"monitoring || outbound == 'NatGateway'", "variables"},
	{"accounts that are not handed down", "main.bicep", "    moreAccounts: moreAccounts\n", "", "handed all"},
	{"roles in the wrong group", "modules/foundation.bicep", "  name: '${prefix}-gallery-roles'\n  scope: resourceGroup(accountGroup)\n",
		"  name: '${prefix}-gallery-roles'\n", "handed all"},
	{"a variable that nobody sets", "cheapest.bicepparam", "readEnvironmentVariable('OPERATOR_ID'", "readEnvironmentVariable('OPERATOR'",
		"parameters"},
	{"another output", "main.bicep", "string[] = foundation.outputs.workerConfiguration",
		"string[] = foundation.outputs.onDemandConfiguration",
		"defaults"},
	{"a least number of VMs that is forgotten", "main.bicep", "param capacity int = minInstances", "param capacity int = 1", "defaults"},
	{"an identity where there are no VMs for it", "modules/identities.bicep", "= if (onDemand) {", "= if (!onDemand) {", "made"},
	{"evictions that are published by default", "main.bicep", "param publishEvents bool = false", "param publishEvents bool = true",
		"defaults"},
	{"a VM without health probe", "modules/fleet.bicep", "concat([vm.healthExtension('Linux', healthPort)], ", "concat([], ", "health"},
	{"a password in the open", "main.bicep", "@secure()\nparam adminPassword string = ''", "param adminPassword string = ''", "secrets"},
	{"a password in an output", "main.bicep", "output scaleSetName string = '${prefix}-spot'", "output scaleSetName string = adminPassword",
		"secrets"},
	{"a password that everybody reads", "windows.bicepparam", "readEnvironmentVariable('ADMIN_PASSWORD', '')", "'Secret-Secret-1'",
		"secrets"},
	{"a password in the history of a module", "modules/spot-plus.bicep", "@secure()\nparam model object", "param model object",
		"secure values"},
	{"a password by another name", "main.bicep", "output scaleSetName string = '${prefix}-spot'",
		"var word = '${prefix}${adminPassword}'\noutput scaleSetName string = word", "secure values"},
	{"a fixed number of VMs", "cheapest.bicepparam", "int(readEnvironmentVariable('CAPACITY', '1'))", "1", "capacity"},
	{"another variable's number", "windows.bicepparam", "int(readEnvironmentVariable('CAPACITY', '1'))",
		"int(readEnvironmentVariable('CAPACTIY', '1'))", "capacity"},
	{"no number of VMs", "region.bicepparam", "param capacity = int(readEnvironmentVariable('CAPACITY', '1'))\n", "", "capacity"},
	{"a fixed number of regular VMs", "production.bicepparam", "int(readEnvironmentVariable('ONDEMAND_CAPACITY', '0'))", "0", "capacity"},
	{"the number of the other set", "production.bicepparam", "readEnvironmentVariable('ONDEMAND_CAPACITY'",
		"readEnvironmentVariable('CAPACITY'", "capacity"},
	{"an output of a list that may be empty", "modules/foundation.bicep", "version!.outputs.versionId", "moreStorage[0].outputs.accountId",
		"indexes"},
	{"no password", "main.bicep", "length(adminPassword) < 12", "length(adminPassword) < 0", "secrets"},
	{"a name too long for Windows", "modules/regular-scale-set.bicep", "vm.windowsProfile('ondemand'", "vm.windowsProfile('ondemandvm'",
		"windows"},
	{"commands of the other system", "main.bicep", "windows ? windowsPackageCommands : packageCommands",
		"windows ? packageCommands : windowsPackageCommands", "handed down"},
	{"a command that is not the package's", "main.bicep", ".\\\\worker.exe package update'", ".\\\\worker.exe package install'", "windows"},
	{"the health of the other system", "modules/vm.bicep", "? 'ApplicationHealthWindows'", "? 'ApplicationHealthLinux'", "health"},
	{"logs of the other system", "main.bicep", "C:\\\\ProgramData\\\\spotworker\\\\logs", "C:\\\\ProgramData\\\\spotworker", "windows"},
	{"the policy of the other system", "modules/log-association.bicep", "? 'eab1f514-22e3-42e3-9a1f-e1dc9199355c'",
		"? '2ea82cdd-f2e8-4500-af75-67a2e084ca74'", "settings"},
	{"updates that restart a VM", "modules/vm.bicep", "enableAutomaticUpdates: false", "enableAutomaticUpdates: true", "limits"},
	{"a list of sizes that may be short", "fleet.bicep", "@minLength(3)\n@maxLength(15)", "@maxLength(15)", "bounds"},
	{"a number without a bound", "single.bicep", "@minValue(0)\n@maxValue(100)\nparam evictionRate", "param evictionRate", "bounds"},
	{"a bound of a type", "modules/types.bicep", "@minValue(8)", "@minValue(7)", "bounds"},
	{"an access that there is not", "modules/types.bicep", "'Read' | 'ReadWrite'", "'Read' | 'ReadOnly'", "choices"},
	{"an account of a provider that there is not", "modules/foundation.bicep", "'Microsoft.Storage/storageAccounts@2025-01-01' existing",
		"'Microsoft.Strage/storageAccounts@2025-01-01' existing", "types"},
	{"addresses that are dropped", "fleet.bicepparam", "= empty(readEnvironmentVariable('OPERATOR_ADDRESSES'",
		"= !empty(readEnvironmentVariable('OPERATOR_ADDRESSES'", "parameters"},
	{"another default of a variable", "windows.bicepparam", "'1.0.0'", "'1.0'", "parameters"},
	{"a size less", "production.bicepparam", "  'Standard_E2s_v5'\n", "", "parameters"},
	{"updates to more broken VMs", "modules/regular-scale-set.bicep", "maxUnhealthyInstancePercent: 20", "maxUnhealthyInstancePercent: 40",
		"products"},
	{"an age of another name", "modules/storage.bicep", "{ name: 'outputs'", "{ name: 'outpts'", "retention"},
	{"events of every service", "modules/monitoring.bicep", "Application!*[System[Provider[@Name=\\'spotworker\\']]]", "Application!*",
		"limits"},
}

// checker stands for the checker's own findings.
const checker = "the checker"

// TestBrokenCopies breaks a copy of the deployment in one place at a time.
func TestBrokenCopies(t *testing.T) {
	command := checkerCommand(t)
	for _, c := range brokenCopies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			folder := filepath.Join(root, "infra", "bicep")
			if err := os.CopyFS(folder, os.DirFS(bicepFolder)); err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(folder, c.file), c.old, c.new)

			if c.want == checker {
				findings, failed := runChecker(t, command, root, "infra/bicep")
				if !failed {
					t.Errorf("the checker finds nothing wrong, want a finding")
				} else if !bytes.Contains(findings, []byte(filepath.Base(c.file))) {
					t.Errorf("the checker says nothing of %s:\n%s", c.file, findings)
				}
				return
			}
			dump, _ := runChecker(t, command, root, "--dump", "infra/bicep")
			d, err := read(dump, folder)
			if err != nil {
				t.Fatal(err)
			}
			found := judge(d)
			if !slices.ContainsFunc(found, func(f finding) bool { return f.rule == c.want }) {
				t.Errorf("rule %q finds nothing wrong; found %v", c.want, found)
			}
		})
	}
}

// TestEveryRuleIsBroken: a rule that no copy breaks may find nothing at all.
func TestEveryRuleIsBroken(t *testing.T) {
	for _, rule := range rules {
		broken := false
		for _, c := range brokenCopies {
			broken = broken || c.want == rule.name
		}
		if !broken {
			t.Errorf("no broken copy is for rule %q", rule.name)
		}
	}
}

// TestDumpIsFresh compares the committed dump with the files.
func TestDumpIsFresh(t *testing.T) {
	command := checkerCommand(t)
	want, err := os.ReadFile(dumpFile)
	if err != nil {
		t.Fatal(err)
	}
	got, failed := runChecker(t, command, "../..", "--dump", "infra/bicep")
	if failed {
		t.Fatal("the checker cannot print the deployment")
	}
	if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
		t.Errorf("%s is not what infra/bicep says; write it again with tools/bicep.sh update", dumpFile)
	}
}

// checkerCommand returns the command in BICEPCHECK, or skips the test. Where
// the checker is installed .ci/run sets it.
func checkerCommand(t *testing.T) []string {
	t.Helper()
	command := strings.Fields(os.Getenv("BICEPCHECK"))
	if len(command) == 0 {
		need.Absent(t, need.BicepChecker, "BICEPCHECK names none")
	}
	return command
}

// runChecker returns the checker's standard output, and whether it found anything.
func runChecker(t *testing.T, command []string, folder string, arguments ...string) (out []byte, failed bool) {
	t.Helper()
	all := slices.Concat(command[1:], arguments)
	run := exec.CommandContext(t.Context(), command[0], all...)
	run.Dir = folder
	var said bytes.Buffer
	run.Stderr = &said
	out, err := run.Output()
	if err != nil && run.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v\n%s", run, err, &said)
	}
	return out, err != nil
}

// edit replaces the first occurrence of old, which must be there.
func edit(t *testing.T, name, old, replacement string) {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(source, []byte(old)) {
		t.Fatalf("%s does not contain %q", filepath.Base(name), old)
	}
	broken := bytes.Replace(source, []byte(old), []byte(replacement), 1)
	if err := os.WriteFile(name, broken, 0o600); err != nil {
		t.Fatal(err)
	}
}
