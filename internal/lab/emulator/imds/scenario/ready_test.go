package scenario

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/preempt"
)

// turn is a moment at which a VM changes its mind.
type turn struct {
	at   time.Duration // since the first call
	what string        // action, type and status, as in "drain Preempt Scheduled"
}

// client is a VM's software: it polls, learns its name, decides, and acknowledges at once
// every event that it may.
type client struct {
	*preempt.Client
	acknowledges bool
	begin        time.Time

	mu       sync.Mutex
	identity preempt.Identity
	document *preempt.Document
	turns    []turn
	asked    map[string]bool // ids of acknowledged events
	posts    sync.WaitGroup
}

// run polls until ctx ends.
func (c *client) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() {
		identity, err := c.Discover(ctx, nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.identity = identity; err == nil {
			c.judge(ctx)
		}
	})
	preempt.NewWatcher(c.Client).Run(ctx, func(o preempt.Observation) {
		if o.Changed {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.document = &o.Document
			c.judge(ctx)
		}
	})
	all.Wait()
	c.posts.Wait()
}

// judge notes what follows from the last document. The caller holds mu.
func (c *client) judge(ctx context.Context) {
	if c.document == nil || c.identity.Name == "" {
		return
	}
	now := time.Now()
	d := preempt.Decide(*c.document, c.identity, c.document.Now(now))
	what := strings.TrimSpace(strings.Join([]string{d.Action.String(), d.Event.Type, d.Event.Status}, " "))
	if n := len(c.turns); n == 0 || c.turns[n-1].what != what {
		c.turns = append(c.turns, turn{now.Sub(c.begin), what})
	}
	for _, a := range d.Acknowledgements() {
		if c.acknowledges && !c.asked[a.Event.ID] {
			c.asked[a.Event.ID] = true
			c.posts.Go(func() { _ = c.Acknowledge(ctx, a.Event.ID) })
		}
	}
}

// watchAll plays a scenario for a worker's watcher on each of its VMs, in virtual
// time, and returns the turns of each, and the lines.
func watchAll(t *testing.T, s Scenario, acknowledge bool) (turns map[string][]turn, lines []string, stats map[string]imds.Stats) {
	t.Helper()
	var mu sync.Mutex
	p := New(s, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	clients := map[string]*client{}
	for _, vm := range s.VMs {
		c, err := preempt.NewClient("http://127.0.0.1", preempt.WithTransport(p.Server().VM(vm.Name).RoundTripper()))
		if err != nil {
			t.Fatal(err)
		}
		one := &client{Client: c, acknowledges: acknowledge, begin: time.Now(), asked: map[string]bool{}}
		clients[vm.Name] = one
		running.Go(func() { one.run(ctx) })
	}
	p.Run(ctx)
	cancel()
	running.Wait()
	turns, stats = map[string][]turn{}, map[string]imds.Stats{}
	for name, c := range clients {
		turns[name], stats[name] = c.turns, p.Server().VM(name).Stats()
	}
	return turns, lines, stats
}

// TestReadyScenarios: every scenario that comes with the program leads a real
// watcher to the decisions that it is there for, within a poll of each step.
func TestReadyScenarios(t *testing.T) {
	const (
		calm    = "carry on"
		drain   = "drain Preempt Scheduled"
		started = "drain Preempt Started"
		s       = time.Second
		m       = time.Minute
	)
	tests := map[string]struct {
		acknowledge bool
		slack       time.Duration // beyond one poll
		want        map[string][]turn
		tells       []string
	}{
		"eviction": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, drain}, {40 * s, started}}},
			tells: []string{"eviction is announced: Preempt of spot_0, Scheduled, not before", "spot_0 is shown eviction, Scheduled",
				"VM spot_0 is taken away"}},
		"short-notice": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, drain}, {15 * s, started}}},
			tells: []string{"5s from now", "eviction is Started, as its NotBefore has come"}},
		"withdrawn": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, drain}, {25 * s, calm}, {40 * s, "drain by Reboot Scheduled"},
			{60 * s, calm}}},
			tells: []string{"eviction is withdrawn"}},
		"freeze": {want: map[string][]turn{
			"WestNO_0": {{0, calm}, {10 * s, "carry on Freeze Scheduled"}, {15*m + 10*s, "carry on Freeze Started"}, {25*m + 10*s, calm}},
			"WestNO_1": {{0, calm}, {10 * s, "carry on Freeze Scheduled"}, {15*m + 10*s, "carry on Freeze Started"}, {25*m + 10*s, calm}},
		}, tells: []string{"migration has an impact of 7s: requests of WestNO_0, WestNO_1 wait for its end"}},
		"restart": {acknowledge: true, slack: s, want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, "drain Reboot Scheduled"},
			{10 * s, "drain Reboot Started"}, {30 * s, calm}}},
			tells: []string{"by a person", "spot_0 acknowledges restart"}},
		"hardware-failure": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, "drain Reboot Started"}, {90 * s, calm}}},
			tells: []string{"requests of spot_0 wait for its end", "the impact on spot_0 is over"}},
		"degraded-host": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, "drain by Redeploy Scheduled"},
			{110 * s, "drain Redeploy Started"}, {230 * s, calm}}},
			tells: []string{"redeploy is moved: not before"}},
		"terminate": {want: map[string][]turn{"set_0": {{0, calm}}, "set_1": {{0, calm}, {10 * s, "drain by Terminate Scheduled"},
			{5*m + 10*s, "drain Terminate Started"}}},
			tells: []string{"scale-in is over: it is not listed any more"}},
		"advice": {want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, "checkpoint now SpotRebalanceRecommendation Advisory"},
			{130 * s, drain}, {160 * s, started}}},
			tells: []string{"asks for its events, in version 2024-07-09"}},
		"first-call": {want: map[string][]turn{"spot_0": {{120 * s, drain}, {140 * s, started}}},
			tells: []string{"spot_0 is shown eviction, Scheduled, 10.0 s after it was announced"}},
		"neighbours": {want: map[string][]turn{
			"set_1": {{0, calm}, {10 * s, "drain Reboot Scheduled"}, {30 * s, "drain Reboot Started"}, {50 * s, calm},
				{100 * s, "carry on Freeze Scheduled"}, {130 * s, "carry on Freeze Started"}, {135 * s, calm}},
			"set_10": {{0, calm}, {55 * s, "drain Reboot Scheduled"}, {75 * s, "drain Reboot Started"}, {95 * s, calm},
				{100 * s, "carry on Freeze Scheduled"}, {110 * s, drain}, {140 * s, started}},
			"other": {{0, calm}},
		}},
		"slow-polls": {slack: 1050 * time.Millisecond, want: map[string][]turn{"spot_0": {{0, calm}, {39 * s, drain}, {69 * s, started}}},
			tells: []string{"one in 10 of the requests for events get their answers 5s late"}},
		"trouble": {slack: 2 * s, want: map[string][]turn{"spot_0": {{0, calm}, {129 * s, drain}, {159 * s, started}}},
			tells: []string{"more than 1 requests of a VM in a second get 429", "it is over that requests get 302",
				"in version 2024-07-09 get 404"}},
		"tomorrow": {acknowledge: true, slack: s, want: map[string][]turn{"spot_0": {{0, calm}, {10 * s, "checkpoint now Hibernate Scheduled"},
			{30 * s, "checkpoint now Hibernate Started"}, {50 * s, calm},
			{60 * s, "checkpoint now Freeze Scheduled"}, {60 * s, "checkpoint now Freeze Started"}, {70 * s, calm}}}},
	}
	for _, name := range Ready() {
		tt, tested := tests[name]
		if !tested {
			t.Errorf("scenario %s has no test", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := Load(name)
				if err != nil {
					t.Fatal(err)
				}
				turns, lines, stats := watchAll(t, s, tt.acknowledge)
				for vm, want := range tt.want {
					checkTurns(t, vm, turns[vm], want, time.Second+tt.slack)
				}
				told := strings.Join(lines, "\n")
				for _, want := range append(tt.tells, "the scenario ends") {
					if !strings.Contains(told, want) {
						t.Errorf("%q is not told in:\n%s", want, told)
					}
				}
				for vm, of := range stats {
					if of.BusiestSecond > 5 {
						t.Errorf("%s sent %d requests in a second, want at most 5", vm, of.BusiestSecond)
					}
				}
			})
		})
	}
}

// checkTurns wants the turns in that order, each at its time or late by less
// than that much.
func checkTurns(t *testing.T, vm string, got, want []turn, late time.Duration) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: turns = %v, want %v", vm, got, want)
		return
	}
	for i := range want {
		if by := got[i].at - want[i].at; got[i].what != want[i].what || by < 0 || by > late {
			t.Errorf("%s: turn %d = %s, want %s, late by %s at most", vm, i, got[i], want[i], late)
		}
	}
}

func (t turn) String() string { return fmt.Sprintf("%s at %s", t.what, t.at) }
