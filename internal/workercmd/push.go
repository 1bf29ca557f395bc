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

// monitors are the domains of Azure Monitor's endpoints in each cloud, and the resource
// that its tokens are for.
var monitors = map[string]string{
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
	if resource := monitorOf(f.MetricsPush); resource != "" && account.HasIdentity() {
		c.Token = func(ctx context.Context) (string, error) {
			token, _, err := account.Token(ctx, resource)
			return token, err
		}
	}
	p, err := push.New(c)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--metrics-push: %w", err)}
	}
	return p, nil
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
