package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/job"
)

type frame struct {
	Scene  string `json:"scene"`
	Number int    `json:"number"`
}

type image struct {
	Blob  string `json:"blob"`
	Bytes int    `json:"bytes"`
}

// Any credential of package azidentity will do; without one the developer's own sign-in
// is used.
func ExampleOpen() {
	var credential azcore.TokenCredential // azidentity.NewDefaultAzureCredential(nil)
	c, err := client.Open(client.Options{Account: "contoso", Credential: credential})
	if err != nil {
		log.Fatal(err)
	}
	_ = c
}

// A job is put, waited for, and its result decoded.
func ExampleDecode() {
	render := func(ctx context.Context, c *client.Client) (image, error) {
		id, err := c.Put(ctx, client.Spec{ID: "alps-frame-7", Kind: "render", Payload: frame{"alps", 7}})
		if err != nil {
			return image{}, err
		}
		return client.Decode[image](c.Wait(ctx, id))
	}
	_ = render
}

// A kind names the types of its payload and its result, which its handler has too.
func ExampleKind() {
	type order struct{ Width, Height int }
	area := client.Kind[order, int]{Name: "area"}
	handler := job.Typed(1, func(_ context.Context, j *job.TypedJob[order, struct{}]) (int, error) {
		if j.Payload.Width < 0 {
			return 0, job.Permanent(errors.New("the width is negative"))
		}
		return j.Payload.Width * j.Payload.Height, nil
	})

	c, stop, err := clienttest.Start(job.Kinds{area.Name: handler}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = stop() }()
	ctx := context.Background()
	for _, o := range []order{{6, 7}, {-1, 1}} {
		id, err := area.Put(ctx, c, fmt.Sprintf("area-%dx%d", o.Width, o.Height), o)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(area.Wait(ctx, c, id))
	}
	// Output:
	// 42 <nil>
	// 0 job area--1x1 is poison: the width is negative
}

// Many jobs are put as cheaply as by the producer command: a call for each, 16 at once.
func ExampleClient_PutMany() {
	putAll := func(ctx context.Context, c *client.Client, frames int) error {
		jobs := func(yield func(client.Spec, error) bool) {
			for n := range frames {
				if !yield(client.Spec{ID: fmt.Sprintf("alps-frame-%d", n), Kind: "render", Payload: frame{"alps", n}}, nil) {
					return
				}
			}
		}
		sum, err := c.PutMany(ctx, jobs, client.PutOptions{Report: func(r client.PutResult) error {
			if r.Err != nil {
				log.Printf("job %s is not on the queue: %v", r.ID, r.Err)
			}
			return nil
		}})
		log.Printf("%d jobs put, %d ended before, %d failed", sum.Put, sum.Skipped, sum.Failed)
		return err
	}
	_ = putAll
}

// All jobs of a kind that were dead-lettered.
func ExampleClient_List() {
	list := func(ctx context.Context, c *client.Client) error {
		for j, err := range c.List(ctx, client.Filter{Kind: "render", Status: []client.Status{client.StatusPoison}}) {
			if err != nil {
				return err
			}
			fmt.Println(j.ID, j.Reason)
		}
		return nil
	}
	_ = list
}

// The errors tell what to do.
func ExampleClient_Result() {
	show := func(ctx context.Context, c *client.Client, id string) {
		result, err := c.Result(ctx, id)
		var ended *client.EndedError
		var denied *client.DeniedError
		switch {
		case err == nil:
			fmt.Printf("%s\n", result)
		case errors.Is(err, client.ErrNotFinished), errors.Is(err, client.ErrNotFound):
			fmt.Println("not yet")
		case errors.As(err, &ended):
			fmt.Println("given up or cancelled:", ended.Job.Reason)
		case errors.As(err, &denied):
			fmt.Println("assign this role:", denied.Role)
		default:
			fmt.Println(err)
		}
	}
	_ = show
}

// A stream of jobs that is too much for one storage account goes to several deployments. A hash
// of the id chooses the deployment, so that an id that is put again meets its record, and a
// reader finds the job. The list of deployments must stay the same as long as ids are put again.
func Example_severalDeployments() {
	echo := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil })
	deployments := make([]*client.Client, 3)
	for i := range deployments {
		c, stop, err := clienttest.Start(job.Kinds{"echo": echo}, nil) // in production client.Open
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = stop() }()
		deployments[i] = c
	}
	deploymentOf := func(id string) *client.Client {
		sum := sha256.Sum256([]byte(id))
		return deployments[binary.BigEndian.Uint64(sum[24:])%uint64(len(deployments))]
	}

	ctx := context.Background()
	for _, id := range []string{"alps-frame-1", "alps-frame-2", "alps-frame-3"} {
		if _, err := deploymentOf(id).Put(ctx, client.Spec{ID: id, Kind: "echo", Payload: []byte(id)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	result, err := deploymentOf("alps-frame-2").Wait(ctx, "alps-frame-2")
	fmt.Printf("%s %v\n", result, err)
	// Output: alps-frame-2 <nil>
}
