// Package otlp sends traces to a collector, by OpenTelemetry's standard environment
// variables and protocol (OTLP over HTTP with protobuf).
//
// It has a client of its own for the SDK's exporter instead of otlptracehttp, which
// brings gRPC into every program, 5 MB of it, and repeats a batch for a minute. Here a
// batch is tried once. Spans wait in a queue of 2,048 (OTEL_BSP_MAX_QUEUE_SIZE); spans
// without room are dropped, so a collector that is away costs a line of the log
// when that begins, one when it is over, and nothing else.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/spotworker/spotworker/internal/telemetry/tracing"
)

// Config says whose traces are sent.
type Config struct {
	// Service is the name of the program, unless OTEL_SERVICE_NAME gives one.
	Service, Version string

	// Attributes are the process's, as in "host.name"; empty ones are left out.
	Attributes map[string]string

	// Env returns the value of a variable of the environment.
	Env func(string) string

	Log *slog.Logger
}

// Sender sends traces until it is closed. A nil Sender sends none.
type Sender struct {
	*tracing.Tracer
	provider *sdk.TracerProvider
}

// samplers are the values of OTEL_TRACES_SAMPLER that the SDK knows.
var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
	"parentbased_traceidratio"}

// Start starts to send traces if the environment asks for that: a variable names an
// endpoint, or OTEL_TRACES_EXPORTER is otlp. Otherwise it returns nil. The error says
// which variable is wrong.
func Start(c Config) (*Sender, error) {
	exporter := c.Env("OTEL_TRACES_EXPORTER")
	endpoint := c.Env(varEndpoint) + c.Env(varTracesEndpoint)
	switch {
	case strings.EqualFold(strings.TrimSpace(c.Env("OTEL_SDK_DISABLED")), "true"), exporter == "none", exporter == "" && endpoint == "":
		return nil, nil //nolint:nilnil // a nil Sender sends nothing
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: give otlp or none", exporter)
	}
	if err := checkSampler(c.Env); err != nil {
		return nil, err
	}
	client, err := newClient(c.Env, c.Log)
	if err != nil {
		return nil, err
	}
	attributes := []attribute.KeyValue{semconv.ServiceName(c.Service), semconv.ServiceVersion(c.Version)}
	for key, value := range c.Attributes {
		if value != "" {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	about, err := resource.New(context.Background(), resource.WithSchemaURL(semconv.SchemaURL), resource.WithAttributes(attributes...),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(client)), sdk.WithResource(about), sdk.WithIDGenerator(ids{}))
	return &Sender{tracing.New(provider, c.Version), provider}, nil
}

func checkSampler(env func(string) string) error {
	name := strings.ToLower(strings.TrimSpace(env("OTEL_TRACES_SAMPLER")))
	if name != "" && !slices.Contains(samplers, name) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER is %q: give one of %s", name, strings.Join(samplers, ", "))
	}
	ratio := strings.TrimSpace(env("OTEL_TRACES_SAMPLER_ARG"))
	if ratio == "" || !strings.HasSuffix(name, "traceidratio") {
		return nil
	}
	if r, err := strconv.ParseFloat(ratio, 64); err != nil || !(r >= 0 && r <= 1) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: give a ratio from 0 to 1", ratio)
	}
	return nil
}

// Spans returns the tracer; nil for a nil Sender.
func (s *Sender) Spans() *tracing.Tracer {
	if s == nil {
		return nil
	}
	return s.Tracer
}

// Provider returns what records the spans.
func (s *Sender) Provider() trace.TracerProvider { return s.provider }

// Flush sends the spans that have ended, within a time.
func (s *Sender) Flush(within time.Duration) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = s.provider.ForceFlush(ctx) // the client logs every batch that it could not send
}

// Close sends the spans that have ended, within a time, and sends no more.
func (s *Sender) Close(within time.Duration) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = s.provider.Shutdown(ctx)
}

// ids makes ids at random, except for a trace whose id is chosen.
type ids struct{}

// NewIDs implements [sdk.IDGenerator].
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := tracing.ChosenID(ctx)
	for !ok || !id.IsValid() {
		fill(id[:])
		ok = true
	}
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID implements [sdk.IDGenerator].
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		fill(id[:])
	}
	return id
}

func fill(id []byte) {
	for i := range id {
		id[i] = byte(rand.Uint32()) // ids need to differ, not to be secret
	}
}
