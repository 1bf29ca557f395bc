package workercmd

import "testing"

// TestTokensAreForAzureMonitor: no other endpoint gets a token of the worker's identity.
func TestTokensAreForAzureMonitor(t *testing.T) {
	const endpoint = "https://dce-a1b2.westeurope-1.metrics.ingest.monitor.azure.com"
	for url, want := range map[string]string{
		endpoint + "/dataCollectionRules/dcr-1/streams/Microsoft-PrometheusMetrics/api/v1/write": "https://monitor.azure.com",

		"https://westeurope.monitoring.azure.com/subscriptions/s/metrics": "https://monitoring.azure.com",
		"http://westeurope.monitoring.azure.com/subscriptions/s/metrics":  "",
		"https://monitoring.azure.com.example.org/metrics":                "",

		"https://x.INGEST.monitor.azure.us/w":                  "https://monitor.azure.us",
		"http://x.ingest.monitor.azure.com/w":                  "",
		"https://ingest.monitor.azure.com.example.org/w":       "",
		"https://example.org/?.ingest.monitor.azure.com":       "",
		"https://evilingest.monitor.azure.com":                 "",
		"https://user@example.org:1/.ingest.monitor.azure.com": "",
	} {
		if got := monitorOf(url); got != want {
			t.Errorf("resource for %s = %q, want %q", url, got, want)
		}
	}
}
