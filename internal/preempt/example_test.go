package preempt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// A worker judges each document, and cancels its work with the notice as cause.
func ExampleDecide() {
	local := time.Date(2026, time.March, 9, 12, 0, 5, 0, time.UTC)
	doc := preempt.Document{
		Events: []preempt.Event{{
			ID:        "A123BC45-1234-5678-AB90-ABCDEF123456",
			Type:      preempt.TypePreempt,
			Status:    preempt.StatusScheduled,
			Resources: []string{"workers_7", "workers_9"},
			NotBefore: time.Date(2026, time.March, 9, 12, 0, 35, 0, time.UTC),
		}},
		Date:       local,
		ReceivedAt: local,
	}
	self := preempt.Identity{Name: "Workers_9"}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if d := preempt.Decide(doc, self, doc.Now(local)); d.Action == preempt.Drain {
		cancel(&preempt.Error{Notice: d.Notice(local)})
	}

	<-ctx.Done()
	if e, ok := errors.AsType[*preempt.Error](context.Cause(ctx)); ok {
		fmt.Println(e.Notice.Type, "of", e.Notice.EventID)
		fmt.Println(e.Notice.Reason)
		fmt.Println("to be released by", e.Notice.Deadline.Format(time.TimeOnly))
	}
	// Output:
	// Preempt of A123BC45-1234-5678-AB90-ABCDEF123456
	// an eviction is announced for 2026-03-09T12:00:35Z or later
	// to be released by 12:00:15
}
