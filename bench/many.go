//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

const (
	// manyLatency is the latency of the storage for many jobs in flight.
	manyLatency = 10 * time.Millisecond

	// firstSaves is how long after their first states were recorded the jobs are measured.
	firstSaves = 10 * time.Second
)

// measureMany prints the table of many jobs in flight.
func (b *bench) measureMany(ctx context.Context) error {
	t := &table{figures: []figure{{"RSS, MiB", "%.1f", true}, {"First states, s", "%.1f", true}, {"Drain, s", "%.2f", true}}}
	for _, jobs := range b.InFlight {
		if err := b.compare(ctx, t, strconv.Itoa(jobs)+" jobs", b.workers(func(ctx context.Context, binary string) ([]float64, error) {
			return b.measureInFlight(ctx, binary, jobs)
		})...); err != nil {
			return err
		}
	}
	b.print(t, "Many jobs in flight", fmt.Sprintf("Each has recorded a state of 100 bytes and waits; storage at %s. Memory is that of %s "+
		"after the first states.", manyLatency, firstSaves))
	return nil
}

// measureInFlight starts a worker with so many jobs that wait, and drains it.
func (b *bench) measureInFlight(ctx context.Context, binary string, jobs int) ([]float64, error) {
	s, err := b.startStorage(ctx, manyLatency, jobs, "wait")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	begun := time.Now()
	p, err := b.startWorker(ctx, s, binary, "--concurrency", strconv.Itoa(jobs), "--log-format", "json", "--drain-budget", "1m")
	if err != nil {
		return nil, err
	}
	defer p.kill()
	if err := s.await(storage.OpPutBlob, jobs); err != nil {
		return nil, err
	}
	states := time.Since(begun)
	time.Sleep(firstSaves)
	memory := p.residentMiB()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	line, err := p.awaitLogged("drained")
	if err != nil {
		return nil, err
	}
	if line.Released != jobs {
		return nil, fmt.Errorf("the drain released %d jobs of %d", line.Released, jobs)
	}
	drain, err := time.ParseDuration(line.SinceNotice)
	return []float64{memory, states.Seconds(), drain.Seconds()}, err
}
