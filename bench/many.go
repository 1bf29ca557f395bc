package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/bench/probe"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

const (
	// manyLatency is the latency of the storage for many jobs in flight.
	manyLatency = 10 * time.Millisecond

	// firstSaves is how long after their first states were recorded the jobs are measured,
	// and watched how long: three rounds of renewals.
	firstSaves, watched = 10 * time.Second, 30 * time.Second

	// manyPatience bounds the start and the drain of so many jobs.
	manyPatience = 3 * time.Minute
)

// inFlight is the use of resources by one worker with many jobs that have saved a state
// and wait.
type inFlight struct {
	rss, files          float64 // MiB, after the first saves; files are pages of the program's file
	heap, stacks        float64 // MiB, then
	goroutines          float64
	connections         float64 // to the storage, at most
	renewals, mostInOne float64 // a second: the mean, and in the second with the most
	calls               float64 // a second, in the mean
	drain               time.Duration
	drainCPU            time.Duration // of the worker, up to its end
	started             time.Duration // until all jobs had recorded a state
	waited              float64       // part of the drain that the worker or the storage waited for its core
}

// measureMany prints the table of many jobs in flight.
func (b *bench) measureMany(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		b.say("## Many jobs in flight\n\nNot measured: a worker is asked to end by a signal, which Windows does not have.\n")
		return nil
	}
	var table grid
	table.add("Jobs", "", "RSS, MiB", "of files", "Heap, MiB", "Stacks, MiB", "Goroutines", "Connections", "Renewals/s: mean", "most",
		"Calls/s", "First states, s", "Drain, s", "CPU of the drain, s", "Waited")
	sides, names := map[string]string{"worker": b.worker}, []string{"worker"}
	if b.baseline != "" {
		before := "worker of " + b.Baseline
		sides[before], names = b.baseline, append(names, before)
	}
	for _, jobs := range b.InFlight {
		all := map[string][]inFlight{}
		for round := range b.Rounds {
			for i := range names {
				name := names[(i+round)%len(names)]
				m, err := b.measureInFlight(ctx, sides[name], jobs)
				if err != nil {
					return fmt.Errorf("%s with %d jobs in flight: %w", name, jobs, err)
				}
				b.report("%d jobs in flight, %s, round %d: %.0f MiB, drained in %s with %s of CPU, waited %.0f %%", jobs, name, round+1, m.rss,
					m.drain.Round(time.Millisecond), m.drainCPU.Round(time.Millisecond), 100*m.waited)
				all[name] = append(all[name], m)
			}
		}
		for _, name := range names {
			column := func(format string, of func(m inFlight) float64) string {
				var v values
				for _, m := range all[name] {
					v = append(v, of(m))
				}
				return v.show(format)
			}
			table.add(strconv.Itoa(jobs), name,
				column("%.1f", func(m inFlight) float64 { return m.rss }), column("%.1f", func(m inFlight) float64 { return m.files }),
				column("%.1f", func(m inFlight) float64 { return m.heap }),
				column("%.1f", func(m inFlight) float64 { return m.stacks }), column("%.0f", func(m inFlight) float64 { return m.goroutines }),
				column("%.0f", func(m inFlight) float64 { return m.connections }), column("%.0f", func(m inFlight) float64 { return m.renewals }),
				column("%.0f", func(m inFlight) float64 { return m.mostInOne }), column("%.0f", func(m inFlight) float64 { return m.calls }),
				column("%.1f", func(m inFlight) float64 { return m.started.Seconds() }),
				column("%.2f", func(m inFlight) float64 { return m.drain.Seconds() }),
				column("%.2f", func(m inFlight) float64 { return m.drainCPU.Seconds() }), column("%.2f", func(m inFlight) float64 { return m.waited }))
		}
	}
	b.say("## Many jobs in flight\n\nEach has recorded a state of 100 bytes and waits; storage at %s. Memory is that of %s after the first "+
		"states.\n\n%s", manyLatency, firstSaves, &table)
	return nil
}

// measureInFlight starts a worker with so many jobs that wait, watches it, and drains it.
func (b *bench) measureInFlight(ctx context.Context, binary string, jobs int) (m inFlight, err error) {
	s, err := b.startStorage(ctx, manyLatency, jobs, "--kind", "wait")
	if err != nil {
		return m, err
	}
	defer s.kill()
	begun := time.Now()
	env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}
	p, err := b.startProcess(ctx, sideCore, env, binary, "--concurrency", strconv.Itoa(jobs), "--metadata-endpoint", "none", "--listen",
		"none",
		"--log-format", "json", "--drain-budget", "1m")
	if err != nil {
		return m, err
	}
	defer p.kill()
	w := &watch{storage: s, worker: p}
	if m.started, err = w.awaitStates(begun, jobs); err != nil {
		return m, err
	}
	if err := w.follow(firstSaves); err != nil {
		return m, err
	}
	var use probe.Sample
	if err := p.ask(&use); err != nil {
		return m, err
	}
	const mib = 1 << 20
	all, ofFiles := residentBytes(p.cmd.Process.Pid)
	m.rss, m.files = float64(all)/mib, float64(ofFiles)/mib
	m.heap, m.stacks, m.goroutines = float64(use.Heap)/mib, float64(use.Stacks)/mib, float64(use.Goroutines)
	w.perSecond = nil
	if err := w.follow(watched); err != nil {
		return m, err
	}
	m.calls, m.renewals, m.mostInOne, m.connections = w.calls/watched.Seconds(), mean(w.perSecond), slices.Max(w.perSecond),
		float64(w.connections)
	return m, b.drain(&m, s, p, jobs)
}

// drain ends the worker, and reads from its log how long the drain took.
func (b *bench) drain(m *inFlight, s *storageProcess, p *process, jobs int) error {
	var before probe.Sample
	if err := p.ask(&before); err != nil {
		return err
	}
	ownWait, storageWait := waited(p.cmd.Process.Pid), waited(s.cmd.Process.Pid)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for late := time.Now().Add(manyPatience); ; time.Sleep(10 * time.Millisecond) {
		if now := waited(p.cmd.Process.Pid); now > ownWait {
			m.waited = max(m.waited, (now - ownWait).Seconds())
		}
		line, err := p.findLogged("drained")
		switch {
		case err != nil:
			return err
		case line != nil:
			if m.drain, err = time.ParseDuration(line.SinceNotice); err != nil {
				return err
			}
			m.waited = max(m.waited, (waited(s.cmd.Process.Pid)-storageWait).Seconds()) / max(m.drain.Seconds(), 0.001)
			if line.Released != jobs {
				return fmt.Errorf("the drain released %d jobs of %d", line.Released, jobs)
			}
			if err := p.cmd.Wait(); err != nil {
				return fmt.Errorf("the worker ended: %w", err)
			}
			state := p.cmd.ProcessState
			m.drainCPU = state.UserTime() + state.SystemTime() - before.CPU
			return nil
		case time.Now().After(late):
			return errors.New("the worker did not end in time")
		}
	}
}

// watch counts the calls and connections of a worker with many jobs.
type watch struct {
	storage     *storageProcess
	worker      *process
	connections int       // at most
	perSecond   []float64 // renewals in each second
	calls       float64   // of all kinds in that time
}

// awaitStates waits until all jobs have recorded a state, and returns how long that took.
func (w *watch) awaitStates(begun time.Time, jobs int) (time.Duration, error) {
	for late := time.Now().Add(manyPatience); ; time.Sleep(100 * time.Millisecond) {
		c, err := w.storage.counts()
		if err != nil {
			return 0, err
		}
		w.connections = max(w.connections, connectionsOf(w.worker.cmd.Process.Pid))
		if c.Calls[storage.OpPutBlob] >= int64(jobs) {
			return time.Since(begun), nil
		}
		if time.Now().After(late) {
			return 0, fmt.Errorf("%d of %d jobs have recorded a state within %s", c.Calls[storage.OpPutBlob], jobs, manyPatience)
		}
	}
}

// follow counts connections and calls for that long.
func (w *watch) follow(during time.Duration) error {
	before, err := w.storage.counts()
	if err != nil {
		return err
	}
	first := before
	for end := time.Now().Add(during); time.Now().Before(end); {
		for next := time.Now().Add(time.Second); time.Now().Before(next); time.Sleep(20 * time.Millisecond) {
			w.connections = max(w.connections, connectionsOf(w.worker.cmd.Process.Pid))
		}
		now, err := w.storage.counts()
		if err != nil {
			return err
		}
		w.perSecond = append(w.perSecond, float64(now.Calls[storage.OpUpdateMessage]-before.Calls[storage.OpUpdateMessage]))
		before = now
	}
	w.calls = 0
	for operation, n := range before.Calls {
		w.calls += float64(n - first.Calls[operation])
	}
	return nil
}

// drained is the worker's line about a drain. Other lines have only the first fields.
type drained struct {
	Time        time.Time `json:"time"`
	Message     string    `json:"msg"`
	SinceNotice string    `json:"since_notice"`
	Released    int       `json:"released"`
}

// findLogged returns the first line at the end of the process's log with that message; nil
// if there is none yet.
func (p *process) findLogged(message string) (*drained, error) {
	file, err := os.Open(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if end, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	} else if _, err := file.Seek(max(end-8<<10, 0), io.SeekStart); err != nil { // the line is one of the last
		return nil, err
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var d drained
		if json.Unmarshal(lines.Bytes(), &d) == nil && d.Message == message {
			return &d, nil
		}
	}
	return nil, nil //nolint:nilnil // no such line
}

// mean returns the mean of some values, 0 without any.
func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(max(len(all), 1))
}
