package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	setting        = regexp.MustCompile(`\bSPOTWORKER_[A-Z_]+\b`)
	literalSetting = regexp.MustCompile(`\b(SPOTWORKER_[A-Z_]+): '([^'$]*)'`)
)

// computedSettings stand for the settings that a deployment computes.
var computedSettings = map[string]string{
	"SPOTWORKER_ACCOUNT": "account", "SPOTWORKER_PREFIX": "spotworker",
	"SPOTWORKER_MOVE_AFTER": "3", "SPOTWORKER_CHANGEOVER": "10m",
	"SPOTWORKER_DEPTH_METRIC": "https://westeurope.monitoring.azure.com/subscriptions/s/resourceGroups/g/providers/" +
		"Microsoft.Compute/virtualMachineScaleSets/spotworker-spot/metrics",
	"SPOTWORKER_METRICS_PUSH": "https://spotworker.metrics.ingest.monitor.azure.com/" +
		"dataCollectionRules/dcr-1/streams/Microsoft-PrometheusMetrics/api/v1/write?api-version=2023-04-24",
	"SPOTWORKER_DATA_CONTAINER": "archive,packed",
}

// TestSettingsAreAccepted gives a worker all that a deployment may write into
// its configuration, and one more that is wrong: the worker, which therefore
// contacts nothing, finds nothing else to complain of.
func TestSettingsAreAccepted(t *testing.T) {
	settings := map[string]string{
		"SPOTWORKER_METADATA_ENDPOINT": "ftp://127.0.0.1", "AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000000",
		// Should it continue all the same, nothing answers.
		"IDENTITY_ENDPOINT": "http://127.0.0.1:1", "IDENTITY_HEADER": "x",
		"SPOTWORKER_BLOB_ENDPOINT": "https://127.0.0.1:1/account", "SPOTWORKER_QUEUE_ENDPOINT": "https://127.0.0.1:1/account",
	}
	for path, f := range committed(t) {
		for line := range strings.Lines(f.source) {
			if strings.HasPrefix(strings.TrimSpace(line), "@description(") {
				continue
			}
			for _, name := range setting.FindAllString(line, -1) {
				value, known := computedSettings[name]
				if literal := literalSetting.FindStringSubmatch(line); literal != nil {
					value, known = literal[2], true
				}
				if !known {
					t.Errorf("infra/bicep/%s sets %s to something that this test does not know", path, name)
				}
				settings[name] = value
			}
		}
	}
	worker := exec.CommandContext(t.Context(), "go", "run", "./cmd/worker")
	worker.Dir = filepath.Join("..", "..")
	worker.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING=")
	for name, value := range settings {
		worker.Env = append(worker.Env, name+"="+value)
	}
	out, err := worker.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--metadata-endpoint") || strings.Contains(string(out), "has no effect") {
		t.Errorf("worker with %v = %v, want a complaint of its metadata endpoint alone:\n%s", settings, err, out)
	}
	const fewest = 14
	if len(settings) < fewest {
		t.Errorf("found the settings %v, want at least %d", settings, fewest)
	}
}
