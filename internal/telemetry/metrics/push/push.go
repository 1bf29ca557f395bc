package push

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Every is the time between two pushes.
	Every = 15 * time.Second

	// lastTimeout is the time limit of the last push, which the end of the process waits for.
	lastTimeout = 2 * time.Second
)

// Config names the pushed metrics, and where they go.
type Config struct {
	// URL is the endpoint.
	URL string

	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer

	// Instance is the label that tells this worker from others.
	Instance string

	// Token returns an access token; nil where the endpoint needs none.
	Token func(context.Context) (string, error)

	Log *slog.Logger
}

// Pusher pushes the metrics of one worker.
type Pusher struct {
	config Config
	target target
	with   []label
	soon   chan struct{} // holds one: something happened that should be known soon
	failed bool          // the last push failed
}

// New returns a pusher. The error names the fault of the URL.
func New(c Config) (*Pusher, error) {
	t, err := newTarget(c.URL, c.Token)
	if err != nil {
		return nil, err
	}
	return &Pusher{
		config: c, target: t, with: []label{{"instance", c.Instance}, {"job", "spotworker"}}, soon: make(chan struct{}, 1),
	}, nil
}

// Soon asks for a push now. It does not wait.
func (p *Pusher) Soon() {
	select {
	case p.soon <- struct{}{}:
	default:
	}
}

// Run pushes until ctx ends, and a last time then, which ends the worker's series.
func (p *Pusher) Run(ctx context.Context) {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.pushLast(ctx)
			return
		case <-ticker.C:
		case <-p.soon:
		}
		p.push(ctx, false)
	}
}

// pushLast pushes when ctx has ended.
func (p *Pusher) pushLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	p.push(ctx, true)
}

// push pushes the present metrics. It logs the first failure of several.
func (p *Pusher) push(ctx context.Context, last bool) {
	err := p.send(ctx, last)
	switch {
	case err == nil && p.failed:
		p.config.Log.InfoContext(ctx, "metrics are pushed again")
	case err != nil && !p.failed && ctx.Err() == nil:
		p.config.Log.WarnContext(ctx, "metrics not pushed; trying again", "error", err, "retry_in", Every)
	}
	p.failed = err != nil
}

func (p *Pusher) send(ctx context.Context, last bool) error {
	families, err := p.config.Gatherer.Gather()
	if err != nil && len(families) == 0 {
		return fmt.Errorf("gather metrics: %w", err)
	}
	body := encode(samplesOf(families, p.with), time.Now().UnixMilli(), last)
	err = p.target.post(ctx, body, map[string]string{
		"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0",
	})
	if err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	return nil
}
