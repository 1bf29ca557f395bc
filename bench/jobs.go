package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/bench/loop"
	"github.com/spotworker/spotworker/bench/probe"
)

// loopCommand runs the loop until its process is killed.
type loopCommand struct {
	Slots   int    `help:"Jobs at once."`
	Storage string `help:"Connection string."`
}

// Run works until a call fails.
func (c *loopCommand) Run(ctx context.Context) error {
	go probe.Serve(os.Stdin, os.Stdout)
	l := loop.Loop{ConnectionString: c.Storage, Queue: names().Queue, Records: names().Records, Slots: c.Slots}
	return l.Run(ctx)
}

// side is a program that takes jobs from the queue.
type side struct {
	name   string
	settle time.Duration // how long it works before it is measured
	start  func(ctx context.Context, s *storageProcess, slots int) (*process, error)
}

// measurement is one window of one side.
type measurement struct {
	rate        float64 // jobs a second
	cpu         float64 // µs a job
	allocations float64 // objects a job
	calls       float64 // of the storage, a job
	waited      float64 // part of the window that the side or the storage waited for its core
}

// series are the measurements of a side, one for each round.
type series struct {
	rate, cpu, allocations, calls, waited values
}

func (s *series) add(m measurement) {
	s.rate = append(s.rate, m.rate)
	s.cpu = append(s.cpu, m.cpu)
	s.allocations = append(s.allocations, m.allocations)
	s.calls = append(s.calls, m.calls)
	s.waited = append(s.waited, m.waited)
}

// ours is the worker with a kind that does nothing.
func (b *bench) ours(name, binary string) side {
	return side{name, slowStart + settle, func(ctx context.Context, s *storageProcess, slots int) (*process, error) {
		env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}
		return b.startProcess(ctx, sideCore, env, binary, "--concurrency", strconv.Itoa(slots), "--metadata-endpoint", "none", "--listen", "none")
	}}
}

// loop is the loop of this program.
func (b *bench) loop() side {
	return side{"SDK loop", settle, func(ctx context.Context, s *storageProcess, slots int) (*process, error) {
		return b.startProcess(ctx, sideCore, nil, b.self, "loop", "--slots", strconv.Itoa(slots), "--storage", s.connectionString)
	}}
}

// sides are our worker, the same of the baseline if there is one, and the loop.
func (b *bench) sides() []side {
	list := []side{b.ours("worker", b.worker), b.loop()}
	if b.baseline != "" {
		list = append(list, b.ours("worker of "+b.Baseline, b.baseline))
	}
	return list
}

// measureJobs prints the table of jobs.
func (b *bench) measureJobs(ctx context.Context) error {
	var raw, ratios grid
	ratios.add("Latency", "Slots", "Worker ÷", "CPU a job", "Rate", "Allocations")
	raw.add("Latency", "Slots", "", "Jobs/s", "CPU a job, µs", "Allocations a job", "Calls a job", "Waited")
	for _, latency := range b.Latency {
		for _, slots := range b.Slots {
			sides := b.sides()
			all, err := b.interleave(ctx, sides, latency, slots)
			if err != nil {
				return err
			}
			at := []string{latency.String(), strconv.Itoa(slots)}
			for i, s := range sides {
				raw.add(append(at, s.name, all[i].rate.show("%.0f"), all[i].cpu.show("%.0f"), all[i].allocations.show("%.0f"),
					all[i].calls.show("%.2f"), all[i].waited.show("%.2f"))...)
				if i > 0 {
					ratios.add(append(at, s.name, all[0].cpu.over(all[i].cpu).show("%.2f"), all[0].rate.over(all[i].rate).show("%.2f"),
						all[0].allocations.over(all[i].allocations).show("%.2f"))...)
				}
			}
		}
	}
	b.say("## Jobs that do nothing\n\n%s\n%s", &ratios, &raw)
	return nil
}

// interleave measures all sides, round after round.
func (b *bench) interleave(ctx context.Context, sides []side, latency time.Duration, slots int) ([]series, error) {
	all := make([]series, len(sides))
	for round := range b.Rounds {
		for i := range sides {
			at := (i + round) % len(sides) // no side always comes after the same one
			m, err := b.measure(ctx, sides[at], latency, slots)
			if err != nil {
				return nil, fmt.Errorf("%s with %d slots at %s: %w", sides[at].name, slots, latency, err)
			}
			b.report("%s, %d slots, %s, round %d: %.0f jobs/s, %.0f µs, waited %.0f %%", latency, slots, sides[at].name, round+1, m.rate, m.cpu,
				100*m.waited)
			all[at].add(m)
		}
	}
	return all, nil
}

// settle is how long a side works at its full rate before it is measured.
const settle = 300 * time.Millisecond

// slowStart is how long a worker that begins with a backlog claims more slowly than it could: its
// rate doubles each second.
const slowStart = 3 * time.Second

// fastest is how many jobs a second a side may do, generously.
func fastest(latency time.Duration, slots int) float64 {
	most := 9000.0 // on one core
	if latency > 0 {
		most = min(most, 1.5*float64(slots)/latency.Seconds()) // a job is two calls
	}
	return most
}

// expect is how many messages a side may take until the end of a measurement.
func (b *bench) expect(s side, latency time.Duration, slots int) int {
	return max(200, int(fastest(latency, slots)*(s.settle+b.window(latency, slots)+settle).Seconds())) + 32
}

// A window is as long as it takes for fewJobs, up to longestWindow: the processor time of
// fewer is chance.
const (
	fewJobs       = 2000
	longestWindow = 3 * time.Second
)

// window is the time of one measurement.
func (b *bench) window(latency time.Duration, slots int) time.Duration {
	enough := time.Duration(fewJobs / fastest(latency, slots) * float64(time.Second))
	return max(b.Window, min(enough, longestWindow))
}

// errEmpty reports that a queue ran out of messages before the end.
var errEmpty = errors.New("the queue ran empty during the measurement")

// undisturbed is the part of a window that a process may have waited for its core, and
// patience how often a window is measured to get one like that.
const (
	undisturbed = 0.2
	patience    = 2
)

// measure measures a side in the least disturbed of some windows.
func (b *bench) measure(ctx context.Context, s side, latency time.Duration, slots int) (best measurement, err error) {
	for try := range patience {
		m, err := b.measureOnce(ctx, s, latency, slots)
		if err != nil {
			return best, err
		}
		if try == 0 || m.waited < best.waited {
			best = m
		}
		if best.waited <= undisturbed {
			break
		}
	}
	return best, nil
}

// measureOnce measures a side in one window.
func (b *bench) measureOnce(ctx context.Context, s side, latency time.Duration, slots int) (measurement, error) {
	messages := b.expect(s, latency, slots)
	m, err := b.measureWith(ctx, s, latency, slots, messages)
	if errors.Is(err, errEmpty) {
		return b.measureWith(ctx, s, latency, slots, 3*messages)
	}
	return m, err
}

func (b *bench) measureWith(ctx context.Context, s side, latency time.Duration, slots, messages int) (measurement, error) {
	storage, err := b.startStorage(ctx, latency, messages)
	if err != nil {
		return measurement{}, err
	}
	defer storage.kill()
	p, err := s.start(ctx, storage, slots)
	if err != nil {
		return measurement{}, err
	}
	defer p.kill()
	if err := awaitFirst(storage); err != nil {
		return measurement{}, err
	}
	time.Sleep(s.settle)
	before, err := take(storage, p)
	if err != nil {
		return measurement{}, err
	}
	time.Sleep(b.window(latency, slots))
	after, err := take(storage, p)
	if err != nil {
		return measurement{}, err
	}
	if after.Done >= int64(messages) {
		return measurement{}, errEmpty
	}
	return after.since(before)
}

// awaitFirst waits until a job is done.
func awaitFirst(storage *storageProcess) error {
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(2 * time.Millisecond) {
		c, err := storage.counts()
		if err != nil || c.Done > 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no job was done within %s", answerTimeout)
		}
	}
}

// moment is the work that storage and side have done up to a time.
type moment struct {
	at                   time.Time
	storageWait, ownWait time.Duration
	counts
	probe.Sample
}

func take(storage *storageProcess, p *process) (moment, error) {
	c, err := storage.counts()
	if err != nil {
		return moment{}, err
	}
	m := moment{at: time.Now(), counts: c, storageWait: waited(storage.cmd.Process.Pid), ownWait: waited(p.cmd.Process.Pid)}
	return m, p.ask(&m.Sample)
}

// since returns what happened between two moments.
func (m moment) since(before moment) (measurement, error) {
	jobs := float64(m.Done - before.Done)
	if jobs == 0 {
		return measurement{}, errors.New("no job was done during the measurement")
	}
	var calls float64
	for operation, n := range m.Calls {
		calls += float64(n - before.Calls[operation])
	}
	return measurement{
		rate:        jobs / m.at.Sub(before.at).Seconds(),
		cpu:         float64((m.CPU - before.CPU).Microseconds()) / jobs,
		allocations: float64(m.Allocations-before.Allocations) / jobs,
		calls:       calls / jobs,
		waited:      max(m.storageWait-before.storageWait, m.ownWait-before.ownWait).Seconds() / m.at.Sub(before.at).Seconds(),
	}, nil
}
