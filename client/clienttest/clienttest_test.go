package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// double is a handler of a user's.
var double = job.Typed(1, func(ctx context.Context, j *job.TypedJob[int, struct{}]) (any, error) {
	if j.Payload < 0 {
		return nil, job.Permanent(errors.New("the number is negative"))
	}
	job.Logger(ctx).InfoContext(ctx, "doubled", "number", j.Payload)
	return 2 * j.Payload, nil
})

func TestNew(t *testing.T) {
	c := clienttest.New(t, job.Kinds{"double": double})
	id, err := c.Put(t.Context(), client.Spec{Kind: "double", Payload: 21})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.Decode[int](c.Wait(t.Context(), id)); got != 42 || err != nil {
		t.Errorf("double of 21 = %d, %v, want 42", got, err)
	}
}

// TestInBubble: a delay takes no time.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := clienttest.Options(t, job.Kinds{"double": double})
		c, err := client.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var ids []string
		for i := range 5 {
			id, err := c.Put(t.Context(), client.Spec{ID: fmt.Sprint("job-", i), Kind: "double", Payload: i - 1, Delay: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		sum := 0
		for o, err := range c.WaitMany(t.Context(), ids, client.WaitOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.Decode[int](o.Result, o.Err)
			if (err != nil) != (o.Job.ID == "job-0") || err != nil && !errors.Is(err, client.ErrPoison) {
				t.Errorf("outcome of %s = %v", o.Job.ID, err)
			}
			sum += got
		}
		if took := time.Since(began); sum != 12 || took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("sum = %d after %s, want 12 after 10 minutes", sum, took)
		}
		workers, err := c.Workers(t.Context())
		if err != nil || len(workers) != 1 {
			t.Errorf("workers = %+v, %v, want one", workers, err)
		}
	})
}

// TestWithoutWorker: jobs stay on the queue.
func TestWithoutWorker(t *testing.T) {
	c := clienttest.New(t, nil)
	id, err := c.Put(t.Context(), client.Spec{Kind: "double"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), id); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
	if q, err := c.Queues(t.Context()); err != nil || q.Jobs.Messages != 1 {
		t.Errorf("Queues = %+v, %v, want one message", q, err)
	}
}
