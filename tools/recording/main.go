// Command recording runs the demo and draws it: the picture of the README. Run it with
// make recording. All that the picture shows was measured in that run.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/spotworker/spotworker/internal/lab/demo"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

func main() {
	labworker.WorkerMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// run runs a demo and writes its picture, but not of a demo that failed.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("recording", flag.ContinueOnError)
	out := flags.String("out", "docs/demo.svg", "write the picture to `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := demo.DefaultConfig()
	var picture bytes.Buffer
	config.Told = func(s lanes.Story) error { return s.SVG(&picture) }
	if err := demo.Run(ctx, config, os.Stdout); err != nil {
		return err
	}
	return os.WriteFile(*out, picture.Bytes(), 0o644) //nolint:gosec // a picture for everybody
}
