package policy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/telemetry/metrics/push"
)

// limit is a bound that the types of resources do not have, or a value that the worker
// or another file relies on. It is about every line "setting: value" of its file.
// Where a value is an expression, each number or text in it counts.
type limit struct {
	file, setting string
	accepts       matcher
	source        string
}

// matcher returns the fault of a value as Bicep writes it, or an empty text.
type matcher func(value string) string

// Where the limits come from. Pages are on learn.microsoft.com/azure, tables in the
// reference of Azure's REST interface.
const (
	healthPage      = "virtual-machine-scale-sets/virtual-machine-scale-sets-health-extension#settings"
	repairsPage     = "virtual-machine-scale-sets/virtual-machine-scale-sets-automatic-instance-repairs#grace-period"
	terminatePage   = "virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification#rest-api"
	upgradePage     = "virtual-machine-scale-sets/virtual-machine-scale-sets-configure-rolling-upgrades"
	flexiblePage    = "virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes"
	mixPage         = "virtual-machine-scale-sets/instance-mix-overview"
	autoscaleTable  = "rest/api/monitor/autoscale-settings, MetricTrigger and ScaleAction"
	autoscaleDesign = "azure-monitor/autoscale/autoscale-best-practices: rules in pairs, with a margin between them"
	logAlertPage    = "azure-monitor/alerts/alerts-create-log-alert-rule; rest/api/monitor/scheduled-query-rules"
	networkTable    = "rest/api/virtualnetwork: security rules, NAT gateways, public IP addresses"
	storagePage     = "storage/common/storage-account-create; storage/blobs/lifecycle-management-policy-structure"
	firewallPage    = "storage/common/storage-network-security; virtual-machines/vm-applications-publish-with-managed-identity"
	galleryPage     = "virtual-machines/vm-applications#properties-in-vm-application-version-resource"
	namesPage       = "azure-resource-manager/management/resource-name-rules"
	trustedPage     = "virtual-machines/trusted-launch"
	fleetPage       = "azure-compute-fleet/overview; its schema has the compute version's properties"
	ours            = "this project"
)

var limits = []limit{
	{"modules/vm.bicep", "requestPath", exactly("'/healthz'"), ours},
	{"modules/vm.bicep", "intervalInSeconds", between(5, 60), healthPage},
	// A restart of the worker takes up to 20 s, and must not look like an illness.
	{"modules/vm.bicep", "numberOfProbes", between(3, 24), healthPage},
	{"modules/vm.bicep", "gracePeriod", between(300, 14_400), healthPage},
	{"modules/vm.bicep", "securityType", exactly("'TrustedLaunch'"), trustedPage},
	{"modules/vm.bicep", "deleteOption", exactly("'Delete'"), ours + ": nothing of an evicted VM stays and costs"},
	{"modules/vm.bicep", "networkApiVersion", oneOf("'2020-11-01'", "'2022-11-01'"), flexiblePage + "; rest/api/compute: 2020-11-01 or later"},
	{"modules/vm.bicep", "disablePasswordAuthentication", exactly("true"), ours},
	{"modules/vm.bicep", "enableAutomaticUpdates", exactly("false"), ours + ": a restart for updates would interrupt jobs"},
	{"modules/single-vm.bicep", "deleteOption", exactly("'Delete'"), ours},
	{"modules/single-vm.bicep", "disablePasswordAuthentication", exactly("true"), ours},

	{"modules/*-scale-set.bicep", "orchestrationMode", exactly("'Flexible'"), mixPage},
	{"modules/*-scale-set.bicep", "platformFaultDomainCount", exactly("1"), flexiblePage + ": with zones, and to mix priorities"},
	{"modules/*-scale-set.bicep", "singlePlacementGroup", exactly("false"), flexiblePage + ": more than 100 VMs"},
	{"modules/*-scale-set.bicep", "gracePeriod", lasts(10*time.Minute, 90*time.Minute), repairsPage},
	{"modules/*-scale-set.bicep", "repairAction", exactly("'Replace'"), ours + ": a VM without a worker is not helped by a restart"},
	{"modules/*-scale-set.bicep", "maxBatchInstancePercent", between(5, 100), upgradePage},
	{"modules/*-scale-set.bicep", "maxUnhealthyInstancePercent", between(5, 100), upgradePage},
	{"modules/*-scale-set.bicep", "maxUnhealthyUpgradedInstancePercent", between(5, 100), upgradePage},
	{"modules/*-scale-set.bicep", "pauseTimeBetweenBatches", lasts(0, time.Hour), upgradePage},
	{"modules/*-scale-set.bicep", "osImageNotificationProfile", never, flexiblePage + ": no automatic OS updates"},
	{"modules/*-scale-set.bicep", "automaticOSUpgradePolicy", never, flexiblePage + ": no automatic OS updates"},
	{"modules/regular-scale-set.bicep", "notBeforeTimeout", exactly("'PT15M'"), terminatePage + ": the longest, so that most jobs end"},
	{"modules/spot-scale-set.bicep", "scheduledEventsApiVersion", exactly("'2020-07-01'"), "virtual-machines/linux/scheduled-events"},
	{"modules/fleet.bicep", "computeApiVersion", exactly("'2024-07-01'"), fleetPage + "; the types in vm.bicep are of it"},

	{"modules/autoscale.bicep", "timeGrain", lasts(time.Minute, 12*time.Hour), autoscaleTable},
	{"modules/autoscale.bicep", "timeWindow", lasts(5*time.Minute, 12*time.Hour), autoscaleTable},
	{"modules/autoscale.bicep", "cooldown", lasts(time.Minute, 7*24*time.Hour), autoscaleTable},
	{"modules/autoscale.bicep", "timeAggregation", exactly("'Average'"), autoscaleTable + ": Total would add up one depth many times"},
	{"modules/autoscale.bicep", "metricName", oneOf("'ApproximateMessageCount'", "'"+push.DepthMetric+"'"), "what workers publish"},
	{"modules/autoscale.bicep", "metricNamespace", exactly("'" + push.DepthNamespace + "'"), "what workers publish"},
	{"modules/autoscale.bicep", "{ DimensionName", exactly("'" + push.DepthDimension + "', Operator: 'Equals', Values: queueNames }"),
		"what workers publish"},
	{"modules/autoscale.bicep", "value", between(1, 100), autoscaleTable + ": a step of none never scales"},

	{"modules/no-workers-alert.bicep", "windowSize", lastsOneOf(1, 5, 10, 15, 30, 45, 60, 120, 180, 240, 300, 360, 1440, 2880), logAlertPage},
	{"modules/no-workers-alert.bicep", "evaluationFrequency", lastsOneOf(1, 5, 10, 15, 30, 45, 60, 120, 180, 240, 300, 360, 720, 1440),
		logAlertPage},
	{"modules/no-workers-alert.bicep", "skipQueryValidation", exactly("true"), logAlertPage + ": the tables are empty at first"},

	{"modules/network.bicep", "priority", between(100, 4096), networkTable},
	{"modules/network.bicep", "idleTimeoutInMinutes", between(4, 120), networkTable},

	{"modules/storage.bicep", "publicNetworkAccess", exactly("'Enabled'"), firewallPage + ": service endpoints need it"},
	{"modules/storage.bicep", "bypass", exactly("'AzureServices'"), firewallPage},
	{"modules/storage.bicep", "prefixMatch", exactly("['${rule.container}/']"), storagePage + ": without a slash other containers match"},

	{"modules/application-version.bicep", "scriptBehaviorAfterReboot", exactly("'Rerun'"), galleryPage},
	{"modules/application-version.bicep", "replicaCount", between(1, 3), galleryPage},
	{"modules/vm.bicep", "order", between(1, 100), galleryPage},

	{"modules/monitoring.bicep", "disableLocalAuth", exactly("true"), ours},
}

// checkLimits holds each line to its limits.
func checkLimits(d deployment, tell report) {
	for _, l := range limits {
		for name, f := range d {
			if ok, err := path.Match(l.file, name); err != nil || !ok {
				continue
			}
			values := f.settings(l.setting)
			for line, value := range values {
				if wrong := l.accepts(value); wrong != "" {
					tell(name, line, "%s is %s, %s (%s)", l.setting, value, wrong, l.source)
				}
			}
			if len(values) == 0 && l.accepts("") != mustNotBe {
				tell(name, 0, "%s is not there (%s)", l.setting, l.source)
			}
		}
	}
}

// settings are the values of all lines "name: value" of the file, by their line.
func (f *file) settings(name string) map[int]string {
	values := map[int]string{}
	for n, line := range strings.Split(f.source, "\n") {
		line = strings.TrimSpace(line)
		if value, found := strings.CutPrefix(line, name+":"); found {
			values[n+1] = strings.TrimSpace(value)
		}
	}
	return values
}

const mustNotBe = "must not be there"

func never(string) string { return mustNotBe }

func exactly(want string) matcher { return oneOf(want) }

func oneOf(want ...string) matcher {
	return func(value string) string {
		if slices.Contains(want, value) {
			return ""
		}
		return "want " + strings.Join(want, " or ")
	}
}

var (
	numberForm = regexp.MustCompile(`^'?(-?\d+)'?$`)
	textForm   = regexp.MustCompile(`'([^'$]*)'`)
)

// between accepts numbers, and expressions in which no number is out of range.
func between(least, most int) matcher {
	return func(value string) string {
		for _, part := range literals(value) {
			n, err := strconv.Atoi(part)
			if err != nil || n < least || n > most {
				return fmt.Sprintf("want %d to %d", least, most)
			}
		}
		return ""
	}
}

// literals returns the numbers and texts that an expression may come to.
func literals(value string) []string {
	if m := numberForm.FindStringSubmatch(value); m != nil {
		return m[1:]
	}
	var parts []string
	for _, m := range textForm.FindAllStringSubmatch(value, -1) {
		parts = append(parts, m[1])
	}
	if parts == nil && !strings.ContainsAny(value, ".(") && value != strings.ToLower(value) {
		return nil // a parameter, which has limits of its own
	}
	return parts
}

var durationForm = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)

// duration reads one of ISO 8601 with days, hours, minutes and seconds.
func duration(text string) (time.Duration, bool) {
	m := durationForm.FindStringSubmatch(text)
	if m == nil || text == "P" || strings.HasSuffix(text, "T") {
		return 0, false
	}
	var all time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if n, err := strconv.Atoi(m[i+1]); err == nil {
			all += time.Duration(n) * unit
		}
	}
	return all, true
}

func lasts(least, most time.Duration) matcher {
	return func(value string) string {
		parts := literals(value)
		for _, part := range parts {
			if got, ok := duration(part); !ok || got < least || got > most {
				return fmt.Sprintf("want %s to %s, as PT…", least, most)
			}
		}
		if len(parts) == 0 && !strings.HasPrefix(value, "rule.") {
			return "want a duration"
		}
		return ""
	}
}

func lastsOneOf(minutes ...int) matcher {
	return func(value string) string {
		for _, part := range literals(value) {
			if got, ok := duration(part); !ok || got%time.Minute != 0 || !slices.Contains(minutes, int(got/time.Minute)) {
				return fmt.Sprintf("want one of %v minutes", minutes)
			}
		}
		return ""
	}
}
