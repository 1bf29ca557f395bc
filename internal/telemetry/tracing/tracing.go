// Package tracing follows a job from its put through every worker that touches it, with
// OpenTelemetry's API. Package otlp below it sends the recorded spans; without it no span
// is recorded, and a job's trace is only passed on.
//
//	put QUEUE                      producer
//	├── process QUEUE              a worker, from the claim to its end
//	│   ├── recover                whose job is it, payload, state
//	│   ├── handler
//	│   ├── checkpoint             each save
//	│   └── release                or commit, fail, dead-letter, requeue, ...
//	└── process QUEUE              the next worker
//
// All deliveries of a job are children of its put, so one trace has them all. The trace of
// a job that was put without one begins at its first worker, and has an id made from the
// job's, so that the next workers continue it.
//
// Names follow OpenTelemetry's semantic conventions for messaging, version 1.43.0.
package tracing

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names this module as the recorder of the spans.
const scope = "github.com/spotworker/spotworker"

// Tracer begins spans. A nil Tracer records nothing.
type Tracer struct {
	tracer trace.Tracer
}

// New returns a tracer that records with a provider.
func New(p trace.TracerProvider, version string) *Tracer {
	return &Tracer{tracer: p.Tracer(scope, trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL))}
}

// Message is a message on its way.
type Message struct {
	Trace     string // the traceparent that it carries; empty if none
	Queue     string
	MessageID string // empty before it is put
	JobID     string
	Kind      string
	Attempt   int       // how often it was claimed
	Since     time.Time // when the span began; zero for now
}

func (m Message) attributes(operation string, of attribute.KeyValue) []attribute.KeyValue {
	all := []attribute.KeyValue{
		semconv.MessagingSystemKey.String("azure_storage_queues"), semconv.MessagingOperationName(operation), of,
		semconv.MessagingDestinationName(m.Queue), attribute.String("spotworker.job.id", m.JobID),
		attribute.String("spotworker.job.kind", m.Kind),
	}
	if m.MessageID != "" {
		all = append(all, semconv.MessagingMessageID(m.MessageID))
	}
	if m.Attempt > 0 {
		all = append(all, attribute.Int("spotworker.message.claims", m.Attempt))
	}
	return all
}

// Span is a part of a trace. A nil Span records nothing.
type Span struct {
	tracer trace.Tracer
	span   trace.Span
}

// Put begins the span of a job that is put. It is a child of the span in ctx, if there is
// one.
func (t *Tracer) Put(ctx context.Context, m Message) *Span {
	if t == nil {
		return nil
	}
	_, span := t.tracer.Start(ctx, "put "+m.Queue, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(m.attributes("put", semconv.MessagingOperationTypeSend)...))
	return &Span{t.tracer, span}
}

// Process begins the span of a delivery, which continues the message's trace.
func (t *Tracer) Process(ctx context.Context, m Message) *Span {
	if t == nil {
		return nil
	}
	ctx = Continue(trace.ContextWithSpan(ctx, nil), m.Trace)
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = inTraceOf(ctx, m.JobID)
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(m.attributes("process", semconv.MessagingOperationTypeProcess)...),
	}
	if !m.Since.IsZero() {
		options = append(options, trace.WithTimestamp(m.Since))
	}
	_, span := t.tracer.Start(ctx, "process "+m.Queue, options...)
	return &Span{t.tracer, span}
}

// Step begins a part of the span.
func (s *Span) Step(name string) *Span {
	if s == nil {
		return nil
	}
	_, span := s.tracer.Start(trace.ContextWithSpan(context.Background(), s.span), name)
	return &Span{s.tracer, span}
}

// Settle is Step for the end of a delivery.
func (s *Span) Settle(name string) *Span {
	step := s.Step(name)
	if step != nil {
		step.span.SetAttributes(semconv.MessagingOperationName(name), semconv.MessagingOperationTypeSettle)
	}
	return step
}

// Set adds a text to the span.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Count adds a number to the span.
func (s *Span) Count(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// End ends the span. An error makes it a failed span.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.span.RecordError(err)
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// In returns ctx with the span, so that code which uses OpenTelemetry continues its trace.
// Without a span it is traceparent that is continued, or nothing if that is empty.
func (s *Span) In(ctx context.Context, traceparent string) context.Context {
	switch {
	case s != nil:
		return trace.ContextWithSpan(ctx, s.span)
	case traceparent == "":
		return ctx
	}
	return Continue(ctx, traceparent)
}

// Parent returns the span as a W3C traceparent, to continue its trace elsewhere; without
// a span it returns otherwise.
func (s *Span) Parent(otherwise string) string {
	if s == nil {
		return otherwise
	}
	return parentOf(s.span.SpanContext())
}

// Parent returns the span in ctx as a W3C traceparent; empty if there is none.
func Parent(ctx context.Context) string { return parentOf(trace.SpanContextFromContext(ctx)) }

const traceparent = "traceparent"

func parentOf(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), c), carrier)
	return carrier[traceparent]
}

// Continue returns ctx with the span that a W3C traceparent names as the parent of later
// spans. An invalid one changes nothing.
func Continue(ctx context.Context, parent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: parent})
}

// keyTraceID is the key of contexts for the id of a trace that begins.
type keyTraceID struct{}

// inTraceOf returns ctx in which a trace that begins has an id made from a job's.
func inTraceOf(ctx context.Context, jobID string) context.Context {
	sum := sha256.Sum256([]byte("trace of spotworker job " + jobID))
	return context.WithValue(ctx, keyTraceID{}, trace.TraceID(sum[:16]))
}

// ChosenID returns the id that a trace which begins in ctx has to have. It is for the
// generator of ids.
func ChosenID(ctx context.Context) (id trace.TraceID, ok bool) {
	id, ok = ctx.Value(keyTraceID{}).(trace.TraceID)
	return id, ok
}
