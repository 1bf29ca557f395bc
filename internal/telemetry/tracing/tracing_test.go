package tracing

import (
	"context"
	"errors"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestOffCostsNothing: without a tracer a delivery allocates nothing for traces.
func TestOffCostsNothing(t *testing.T) {
	ctx := t.Context()
	var tracer *Tracer
	allocations := testing.AllocsPerRun(100, func() {
		span := tracer.Process(ctx, Message{JobID: "a", Queue: "jobs"})
		step := span.Step("recover")
		step.End(nil)
		settle := span.Settle("commit")
		settle.End(errors.ErrUnsupported)
		if span.In(ctx, "") != ctx || span.Parent("") != "" {
			t.Error("there is a trace")
		}
		span.Set("a", "b")
		span.Count("a", 1)
		span.End(nil)
	})
	if allocations != 0 {
		t.Errorf("%v allocations a job without traces, want 0", allocations)
	}
}

// TestOffPassesOn: without a tracer the handler's context has the producer's span.
func TestOffPassesOn(t *testing.T) {
	var span *Span
	if got := Parent(span.In(t.Context(), parent)); got != parent || span.Parent(parent) != parent {
		t.Errorf("trace in the context = %q, and passed on %q, want %s", got, span.Parent(parent), parent)
	}
	for _, bad := range []string{"x", strings.ToUpper(parent), parent[:54], "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if got := Parent(span.In(t.Context(), bad)); got != "" {
			t.Errorf("trace of %q = %q, want none", bad, got)
		}
	}
}

// TestProcess: a delivery continues the message's trace. The trace of a message without
// one, or with an invalid one, gets the id that all deliveries of the job have. The span
// in the worker's own context has no part in it.
func TestProcess(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	tracer := New(provider, "1.2.3")
	own, _ := provider.Tracer("own").Start(t.Context(), "own")
	tracer.Process(own, Message{Trace: parent, JobID: "a", Queue: "jobs", Kind: "render", MessageID: "m", Attempt: 2}).End(nil)
	tracer.Process(own, Message{Trace: "damaged", JobID: "a", Queue: "jobs"}).End(errors.New("failed"))
	ended := spans.Ended()
	if got := ended[0].Parent(); got.TraceID().String() != parent[3:35] || got.SpanID().String() != parent[36:52] || !got.IsRemote() {
		t.Errorf("parent = %+v, want that of the message", got)
	}
	if ended[1].Parent().IsValid() || ended[1].Status().Description != "failed" {
		t.Errorf("parent of a message with a damaged trace = %v, status %v, want none, and the error", ended[1].Parent(), ended[1].Status())
	}
	if kind, name := ended[0].SpanKind(), ended[0].Name(); kind != trace.SpanKindConsumer || name != "process jobs" {
		t.Errorf("span %q of kind %s", name, kind)
	}
	first, ok := ChosenID(inTraceOf(t.Context(), "a"))
	second, _ := ChosenID(inTraceOf(t.Context(), "a"))
	other, _ := ChosenID(inTraceOf(t.Context(), "b"))
	if _, none := ChosenID(context.Background()); !ok || first != second || first == other || none {
		t.Errorf("ids of traces: %s, %s, of another job %s", first, second, other)
	}
}
