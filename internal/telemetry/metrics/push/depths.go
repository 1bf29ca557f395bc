package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// The custom metrics of a queue, and the dimension with its name. The deployment's autoscale
// names them too.
const (
	DepthNamespace = "spotworker"
	DepthMetric    = "QueueMessages"
	AgeMetric      = "QueueOldestSeconds"
	DepthDimension = "Queue"
)

const (
	// depthTries is how often a reading is sent, and depthPause how long after a failure: the
	// next reading comes 30 s later.
	depthTries, depthPause = 3, 3 * time.Second

	// mostReadings is how many readings wait to be sent: two for each queue of a deployment.
	mostReadings = 32
)

// Depths publishes the depths of queues as custom metrics of a scale set in Azure Monitor, so
// that its autoscale follows them. Autoscale has no identity, so it cannot read the metrics of an
// account that has a firewall and no keys. About three workers of a scale set publish every 30 s, whom chance chooses, so
// that none of them matters; autoscale takes the average.
// https://learn.microsoft.com/azure/azure-monitor/essentials/metrics-store-custom-rest-api
type Depths struct {
	target   target
	readings chan reading
	log      *slog.Logger
	failed   bool // the last reading was not sent
}

// reading is what a worker read of a queue.
type reading struct {
	queue    string
	messages int
	oldest   time.Duration
	at       time.Time
}

// NewDepths returns what publishes at an address of the form
// https://REGION.monitoring.azure.com/RESOURCE-ID/metrics. token may be nil.
func NewDepths(endpoint string, token func(context.Context) (string, error), log *slog.Logger) (*Depths, error) {
	t, err := newTarget(endpoint, token)
	if err != nil {
		return nil, err
	}
	return &Depths{target: t, readings: make(chan reading, mostReadings), log: log}, nil
}

// Resource identifies the resource that gets the metrics.
func (d *Depths) Resource() string {
	sum := sha256.Sum256([]byte(d.target.url))
	return hex.EncodeToString(sum[:4])
}

// Read takes a reading, to be published soon. It does not wait; without room the reading is
// dropped.
func (d *Depths) Read(queue string, messages int, oldest time.Duration) {
	select {
	case d.readings <- reading{queue, messages, oldest, time.Now()}:
	default:
	}
}

// Run publishes readings until ctx ends.
func (d *Depths) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.readings:
			d.publish(ctx, r)
		}
	}
}

// publish sends both metrics of a reading. It logs the first failure of several.
func (d *Depths) publish(ctx context.Context, r reading) {
	err := errors.Join(d.send(ctx, r, DepthMetric, float64(r.messages)), d.send(ctx, r, AgeMetric, r.oldest.Seconds()))
	switch {
	case ctx.Err() != nil:
		return
	case err == nil && d.failed:
		d.log.InfoContext(ctx, "depths of queues are published again")
	case err != nil && !d.failed:
		d.log.WarnContext(ctx, "depths of queues not published: the number of VMs does not follow the queue until they are; trying again",
			"error", err)
	}
	d.failed = err != nil
}

// send sends one metric, again after a failure that may pass.
func (d *Depths) send(ctx context.Context, r reading, metric string, value float64) (err error) {
	type series struct {
		Values []string `json:"dimValues"`
		Min    float64  `json:"min"`
		Max    float64  `json:"max"`
		Sum    float64  `json:"sum"`
		Count  int      `json:"count"`
	}
	body, err := json.Marshal(map[string]any{
		"time": r.at.UTC().Format(time.RFC3339),
		"data": map[string]any{"baseData": map[string]any{
			"metric": metric, "namespace": DepthNamespace, "dimNames": []string{DepthDimension},
			"series": []series{{[]string{r.queue}, value, value, value, 1}},
		}},
	})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err = d.target.post(ctx, body, map[string]string{"Content-Type": "application/json"}); err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*refusal](err); ok && refused.status/100 == 4 && refused.status != http.StatusTooManyRequests ||
			try == depthTries || retry.Sleep(ctx, depthPause) != nil {
			return fmt.Errorf("publish %s of queue %s: %w", metric, r.queue, err)
		}
	}
}
