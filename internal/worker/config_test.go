package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestValidate: New names what is wrong with a configuration.
func TestValidate(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		good := func() Config {
			return Config{Queue: b.queue, OnDemand: b.onDemand, Poison: b.poison, Payloads: b.payloads, Records: b.records, Workers: b.workers, Kinds: job.Kinds{"echo": echo}}
		}
		tests := []struct {
			name   string
			change func(*Config)
			want   string // part of the error; empty for none
		}{
			{"good", func(*Config) {}, ""},
			{"no stores", func(c *Config) { c.Records = nil }, "queues and containers"},
			{"no kinds", func(c *Config) { c.Kinds = nil }, "no kind"},
			{"bad kind", func(c *Config) { c.Kinds = job.Kinds{"a b": echo} }, `"a b"`},
			{"bad limits", func(c *Config) { c.Kinds = job.Kinds{"k": job.WithLimits(echo, job.Limits{MaxRun: -1})} }, `limits of kind "k"`},
			{"unknown default kind", func(c *Config) { c.DefaultKind = "x" }, `"x"`},
			{"concurrency too high", func(c *Config) { c.Concurrency = 10_001 }, "1 to 10000"},
			{"negative concurrency", func(c *Config) { c.Concurrency = -1 }, "1 to 10000"},
			{"interval too short", func(c *Config) { c.Policy = checkpoint.Policy{Interval: 1} }, "100ms to 10m0s"},
			{"eviction rate too high", func(c *Config) { c.Policy = checkpoint.Policy{EvictionRate: 5} }, "up to 1 an hour"},
			{"two queues", func(c *Config) { c.TakeFrom = []*queue.Queue{b.onDemand, b.queue} }, ""},
			{"one queue twice", func(c *Config) { c.TakeFrom = []*queue.Queue{b.queue, b.queue} }, "twice"},
			{"nil as a queue to take from", func(c *Config) { c.TakeFrom = []*queue.Queue{nil} }, "queues and containers"},
			{"moves jobs", func(c *Config) { c.MoveAfter = 1 }, ""},
			{"moves jobs without an on-demand queue", func(c *Config) { c.MoveAfter, c.OnDemand = 1, nil }, "no on-demand queue"},
			{"moves jobs after -1 interruptions", func(c *Config) { c.MoveAfter = -1 }, "-1 interruptions"},
			{"unknown acknowledger", func(c *Config) { c.Acknowledge = "all" }, `"all"`},
			{"visibility too short", func(c *Config) { c.Visibility = time.Second }, "give 3s to 5m0s"},
			{"visibility too long", func(c *Config) { c.Visibility = time.Hour }, "give 3s to 5m0s"},
			{"drain budget too short", func(c *Config) { c.DrainBudget = time.Millisecond }, "at least 1s"},
			{"a path as the VM name", func(c *Config) { c.VMName = "a/b" }, "VM name"},
			{"a long VM name", func(c *Config) { c.VMName = strings.Repeat("a", 81) }, "VM name"},
		}
		for _, tt := range tests {
			c := good()
			tt.change(&c)
			_, err := New(c)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%s: New = %v, want nil", tt.name, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s: New = %v, want an error that names %q", tt.name, err, tt.want)
			}
		}
	})
}
