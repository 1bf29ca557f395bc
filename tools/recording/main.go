// Command recording runs the demo and writes its terminal's content as an
// animated SVG: the picture of the README. Run it with make recording.
//
// The picture holds the output of the demo, and nothing else. Only time
// and paths are changed: it plays faster, long pauses are shortened, and of an
// absolute path the last element remains.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/spotworker/spotworker/internal/lab/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// run records a demo, or reads a recording, and writes its picture.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("recording", flag.ContinueOnError)
	out := flags.String("out", "docs/demo.svg", "write the picture to `file`")
	from := flags.String("from", "", "draw the recording in `file` instead of running the demo")
	keep := flags.String("keep", "", "keep the recording in `file`, for -from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := load(ctx, *from)
	if err != nil {
		return err
	}
	if *keep != "" {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(*keep, text, 0o600); err != nil {
			return err
		}
	}
	var picture bytes.Buffer
	if err := writeSVG(&picture, r); err != nil {
		return err
	}
	return os.WriteFile(*out, picture.Bytes(), 0o644) //nolint:gosec // a picture for everybody
}

// load returns the recording in a file or, without one, of a demo that it runs.
func load(ctx context.Context, file string) (recording, error) {
	if file == "" {
		recorder := newRecorder(os.Stdout)
		config := demo.DefaultConfig()
		config.Display = recorder
		err := demo.Run(ctx, config, recorder)
		return recorder.recording(), err
	}
	var r recording
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	if len(r.Events) == 0 {
		return r, errors.New(file + " is an empty recording")
	}
	return r, nil
}
