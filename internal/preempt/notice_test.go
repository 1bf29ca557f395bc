package preempt

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNoticeOfADecision(t *testing.T) {
	seenAt := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // a local clock that is years off
	d := Decide(Document{Events: []Event{preemptIn(6 * time.Second)}}, self, noon)
	n := d.Notice(seenAt)
	want := Notice{
		EventID:   "P6s",
		Type:      TypePreempt,
		Status:    StatusScheduled,
		NotBefore: noon.Add(6 * time.Second),
		SeenAt:    seenAt,
		Deadline:  seenAt.Add(6 * time.Second),
		Reason:    d.Reason,
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("notice (-want +got):\n%s", diff)
	}
}

func TestErrorIsACauseThatCanBeRead(t *testing.T) {
	n := Decide(Document{Events: []Event{preemptIn(6 * time.Second)}}, self, noon).Notice(noon)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&Error{Notice: n})

	e, ok := errors.AsType[*Error](context.Cause(ctx))
	if !ok {
		t.Fatalf("cause = %v, want an *Error", context.Cause(ctx))
	}
	if diff := cmp.Diff(n, e.Notice); diff != "" {
		t.Errorf("notice of the cause (-want +got):\n%s", diff)
	}
	const want = "Preempt P6s"
	if e.Error() != want {
		t.Errorf("text = %q, want %q", e, want)
	}
}
