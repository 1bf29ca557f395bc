package spotworker_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/job"
)

// A program that does other things as well: it has a context, a logger and a
// registry of its own. The storage account and the other settings are in the
// environment here, as AZURE_STORAGE_CONNECTION_STRING and SPOTWORKER_LISTEN.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	thumbnail := func(_ context.Context, j *job.Job) ([]byte, error) {
		fmt.Printf("made a thumbnail of %s\n", j.Payload)
		stop() // for this example; a server does it when it shuts down
		return []byte("thumbnails/cat.webp"), nil
	}
	err := spotworker.Run(ctx, spotworker.Options{
		Kinds:     job.Kinds{"thumbnail": job.HandlerFunc(thumbnail)},
		Logger:    slog.New(slog.DiscardHandler),
		Registry:  prometheus.NewRegistry(),
		Arguments: []string{"--concurrency", "2"},
	})
	if err != nil {
		fmt.Println("worker:", err)
	}
	// Output: made a thumbnail of cat.jpg
}
