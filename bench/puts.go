//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// measurePuts prints the table of the producer.
func (b *bench) measurePuts(ctx context.Context) error {
	t := &table{figures: []figure{{"Messages/s", "%.0f", true}, {"CPU a message, µs", "%.0f", true}}}
	lines := strings.Repeat(`{"kind":"noop","payload":`+payload+"}\n", b.Messages)
	for _, latency := range b.Latency {
		err := b.compare(ctx, t, latency.String(),
			side{"producer lines", func(ctx context.Context) ([]float64, error) {
				return b.measurePut(ctx, latency, lines, b.producer, "--quiet", "lines", "-")
			}},
			side{"SDK loop", func(ctx context.Context) ([]float64, error) {
				return b.measurePut(ctx, latency, "", b.self, "puts", fmt.Sprintf("--messages=%d", b.Messages))
			}})
		if err != nil {
			return err
		}
	}
	b.print(t, fmt.Sprintf("Putting %d jobs, %d calls at once", b.Messages, putParallel), "From start to exit of the program.")
	return nil
}

// measurePut runs a program to its end.
func (b *bench) measurePut(ctx context.Context, latency time.Duration, lines, program string, args ...string) ([]float64, error) {
	s, err := b.startStorage(ctx, latency, 0, "noop")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	begun := time.Now()
	cmd := b.command(ctx, sideCore, connect(s), program, args)
	cmd.Stdin, cmd.Stderr = strings.NewReader(lines), os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	c, err := s.counts()
	if put := c[storage.OpPutMessage]; err == nil && put != int64(b.Messages) {
		err = fmt.Errorf("%d messages were put, not %d", put, b.Messages)
	}
	return []float64{float64(b.Messages) / took.Seconds(), float64(used(cmd).Microseconds()) / float64(b.Messages)}, err
}
