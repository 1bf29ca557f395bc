//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

const (
	// settle is how long a side works before its steady rate is measured, and slowStart how much
	// longer a worker does: its rate of claims doubles each second.
	settle    = time.Second
	slowStart = 2 * time.Second

	// A window is as long as it takes for fewJobs, up to longestWindow: the processor time of
	// fewer is chance.
	fewJobs       = 2000
	longestWindow = 3 * time.Second

	// undisturbed is the part of a window that a process may have waited for its core, and
	// tries how often a window is measured to get one like that.
	undisturbed = 0.2
	tries       = 2
)

// errEmpty reports that a queue ran out of messages before the end.
var errEmpty = errors.New("the queue ran empty during the measurement")

// starter starts a side on a storage account.
type starter func(ctx context.Context, s *storageProcess) (*process, error)

// measureJobs prints the table of jobs.
func (b *bench) measureJobs(ctx context.Context) error {
	t := &table{figures: []figure{{"Jobs/s", "%.0f", true}, {"CPU a job, µs", "%.0f", true}, {"Calls a job", "%.2f", false},
		{"Waited", "%.2f", false}, {"First second, jobs", "%.0f", true}}}
	for _, latency := range b.Latency {
		for _, slots := range b.Slots {
			w := b.windowFor(latency, slots)
			sides := append(b.workers(func(ctx context.Context, binary string) ([]float64, error) {
				return b.measureRate(ctx, w, settle+slowStart, func(ctx context.Context, s *storageProcess) (*process, error) {
					return b.startWorker(ctx, s, binary, "--concurrency", strconv.Itoa(slots))
				})
			}), side{"SDK loop", func(ctx context.Context) ([]float64, error) {
				return b.measureRate(ctx, w, settle, func(ctx context.Context, s *storageProcess) (*process, error) {
					return b.startProcess(ctx, sideCore, nil, b.self, "loop", "--slots", strconv.Itoa(slots), "--storage", s.connectionString)
				})
			}})
			if err := b.compare(ctx, t, fmt.Sprintf("%s, %d slots", latency, slots), sides...); err != nil {
				return err
			}
		}
	}
	b.print(t, "Jobs that do nothing", "\"Waited\" is the part of the time in which the side or the storage waited for its core.")
	return nil
}

// window is the time of one measurement.
type window struct {
	latency, length time.Duration
	fastest         float64 // how many jobs a second a side may do, generously
}

func (b *bench) windowFor(latency time.Duration, slots int) window {
	fastest := 9000.0 // on one core
	if latency > 0 {
		fastest = min(fastest, 1.5*float64(slots)/latency.Seconds()) // a job is two calls
	}
	enough := time.Duration(fewJobs / fastest * float64(time.Second))
	return window{latency, max(b.Window, min(enough, longestWindow)), fastest}
}

// measureRate measures a side that works for some time first, in the least disturbed of some windows.
func (b *bench) measureRate(ctx context.Context, w window, first time.Duration, start starter) (best []float64, err error) {
	messages := max(200, int(w.fastest*(first+w.length+settle).Seconds())) + 32
	for range tries {
		figures, err := b.measureWindow(ctx, w, first, messages, start)
		if errors.Is(err, errEmpty) {
			figures, err = b.measureWindow(ctx, w, first, 3*messages, start)
		}
		if err != nil {
			return nil, err
		}
		const waited = 3
		if len(best) == 0 || figures[waited] < best[waited] {
			best = figures
		}
		if best[waited] <= undisturbed {
			break
		}
	}
	return best, nil
}

// measureWindow measures a side in one window.
func (b *bench) measureWindow(ctx context.Context, w window, first time.Duration, messages int, start starter) ([]float64, error) {
	s, err := b.startStorage(ctx, w.latency, messages, "noop")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	p, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.kill()
	if err := s.await(storage.OpDeleteMessage, 1); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	early, err := s.counts()
	if err != nil {
		return nil, err
	}
	time.Sleep(first - settle)
	before, err := take(s, p)
	if err != nil {
		return nil, err
	}
	time.Sleep(w.length)
	after, err := take(s, p)
	if err != nil {
		return nil, err
	}
	if after.calls.done() >= int64(messages) {
		return nil, errEmpty
	}
	figures, err := after.since(before)
	return append(figures, float64(early.done())), err
}

// moment is the work that storage and side have done up to a time.
type moment struct {
	at                       time.Time
	cpu, waited, storageWait time.Duration
	calls                    counts
}

func take(s *storageProcess, p *process) (m moment, err error) {
	m.calls, err = s.counts()
	m.at = time.Now()
	m.cpu, m.waited = p.times()
	_, m.storageWait = s.times()
	return m, err
}

// since returns the figures of the time between two moments.
func (m moment) since(before moment) ([]float64, error) {
	jobs := float64(m.calls.done() - before.calls.done())
	if jobs == 0 {
		return nil, errors.New("no job was done during the measurement")
	}
	var calls float64
	for operation, n := range m.calls {
		calls += float64(n - before.calls[operation])
	}
	took := m.at.Sub(before.at).Seconds()
	return []float64{
		jobs / took, float64((m.cpu - before.cpu).Microseconds()) / jobs, calls / jobs,
		max(m.storageWait-before.storageWait, m.waited-before.waited).Seconds() / took,
	}, nil
}
