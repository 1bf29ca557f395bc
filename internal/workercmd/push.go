package workercmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/telemetry/metrics/push"
)

// monitors are the domains of Azure Monitor's endpoints in each cloud, for Prometheus and for
// custom metrics, and the resource that its tokens are for.
var monitors = map[string]string{
	".monitoring.azure.com":     "https://monitoring.azure.com",
	".monitoring.azure.us":      "https://monitoring.azure.us",
	".monitoring.azure.cn":      "https://monitoring.azure.cn",
	".ingest.monitor.azure.com": "https://monitor.azure.com",
	".ingest.monitor.azure.us":  "https://monitor.azure.us",
	".ingest.monitor.azure.cn":  "https://monitor.azure.cn",
}

// pusher returns what pushes the metrics to --metrics-push, nil without the flag.
func (f *flags) pusher(t *telemetry, account *azure.Account, log *slog.Logger) (*push.Pusher, error) {
	if f.MetricsPush == "" {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	c := push.Config{URL: f.MetricsPush, Gatherer: t.Gatherer(), Instance: host + "-" + f.Instance, Log: log}
	c.Token = monitorToken(f.MetricsPush, account)
	p, err := push.New(c)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--metrics-push: %w", err)}
	}
	return p, nil
}

// depths returns what publishes the depths of queues at --depth-metric, nil without the flag.
func (f *flags) depths(account *azure.Account, log *slog.Logger) (*push.Depths, error) {
	if f.DepthMetric == "" {
		return nil, nil
	}
	d, err := push.NewDepths(f.DepthMetric, monitorToken(f.DepthMetric, account), log)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--depth-metric: %w", err)}
	}
	return d, nil
}

// monitorToken returns what gives a token of the worker's identity for an endpoint of Azure
// Monitor; nil for another endpoint, and for a worker without an identity.
func monitorToken(endpoint string, account *azure.Account) func(context.Context) (string, error) {
	resource := monitorOf(endpoint)
	if resource == "" || !account.HasIdentity() {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		token, _, err := account.Token(ctx, resource)
		return token, err
	}
}

// monitorOf returns the resource that an endpoint of Azure Monitor wants a token for.
// Another endpoint, or an endpoint without TLS, gets none.
func monitorOf(endpoint string) (resource string) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" {
		return ""
	}
	for domain, resource := range monitors {
		if strings.HasSuffix(strings.ToLower(u.Hostname()), domain) {
			return resource
		}
	}
	return ""
}
