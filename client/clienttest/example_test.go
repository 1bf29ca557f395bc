package clienttest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/job"
)

// shout is a program's function that has work done by a worker.
func shout(ctx context.Context, c *client.Client, words string) (string, error) {
	id, err := c.Put(ctx, client.Spec{Kind: "shout", Payload: words})
	if err != nil {
		return "", err
	}
	return client.Decode[string](c.Wait(ctx, id))
}

// A test of a program: the deployment and its worker take one line.
func ExampleNew() {
	test := func(t *testing.T) {
		c := clienttest.New(t, job.Kinds{
			"shout": job.Typed(1, func(_ context.Context, j *job.TypedJob[string, struct{}]) (any, error) {
				return strings.ToUpper(j.Payload), nil
			}),
		})
		if got, err := shout(t.Context(), c, "hello"); got != "HELLO" || err != nil {
			t.Errorf("shout = %q, %v, want HELLO", got, err)
		}
	}
	_ = test
}
