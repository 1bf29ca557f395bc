package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Every is the time between two pushes.
	Every = 15 * time.Second

	// timeout is the time limit of a push, and lastTimeout of the last one, which the
	// end of the process waits for.
	timeout     = 10 * time.Second
	lastTimeout = 2 * time.Second

	// maxReply is how much of a refusal is read, in bytes.
	maxReply = 512
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
	with   []label
	client *http.Client
	soon   chan struct{} // holds one: something happened that should be known soon
	failed bool          // the last push failed
}

// New returns a pusher. The error names the fault of the URL.
func New(c Config) (*Pusher, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is no URL of a remote-write endpoint: give one that begins with https://", c.URL)
	}
	return &Pusher{
		config: c, with: []label{{"instance", c.Instance}, {"job", "spotworker"}},
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		soon:   make(chan struct{}, 1),
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.config.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	if p.config.Token != nil {
		token, err := p.config.Token(ctx)
		if err != nil {
			return fmt.Errorf("sign in for the metrics: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	text, readErr := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err := errors.Join(readErr, reply.Body.Close()); err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	if reply.StatusCode/100 != 2 {
		return fmt.Errorf("push metrics: the endpoint answers %s: %q", reply.Status, text)
	}
	return nil
}
