package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// idle returns n idle VMs.
func idle(n int) []string { return strings.Split(strings.Repeat("vm ", n), " ")[:n] }

// TestDecide: VMs are added for all messages, and removed late, idle ones alone, within the limits.
func TestDecide(t *testing.T) {
	limits := Limits{Min: 0, Max: 20, JobsPerVM: 10}
	for _, c := range []struct {
		name  string
		l     Limits
		f     Facts
		want  int
		words string
	}{
		{"nothing to do", limits, Facts{}, 0, "enough"},
		{"the first VM", limits, Facts{Messages: 1}, 1, "need 1 VMs"},
		{"all messages at once", limits, Facts{Messages: 95, VMs: 2}, 10, "need 10 VMs"},
		{"exactly enough", limits, Facts{Messages: 100, VMs: 10, Idle: idle(9)}, 10, "not twice enough"},
		{"not yet in", limits, Facts{Messages: 51, VMs: 11, Idle: idle(9)}, 11, "not twice enough"},
		{"in", limits, Facts{Messages: 50, VMs: 11, Idle: idle(9)}, 10, "need 5 VMs, twice as many messages 10"},
		{"all go", limits, Facts{VMs: 3, Idle: idle(3)}, 0, "need 0 VMs"},
		{"busy VMs stay", limits, Facts{Messages: 4, VMs: 9, Idle: idle(5)}, 4, "4 VMs run jobs"},
		{"the most", limits, Facts{Messages: 1000, VMs: 20}, 20, "--max is 20"},
		{"more than the most", limits, Facts{Messages: 1000, VMs: 25, Idle: idle(2)}, 23, "--max is 20; 23 VMs run jobs"},
		{"the fewest", Limits{2, 20, 10}, Facts{VMs: 5, Idle: idle(5)}, 2, "--min is 2"},
		{"fewer than the fewest", Limits{2, 20, 10}, Facts{}, 2, "--min is 2"},
		{"more idle VMs than Azure counts", limits, Facts{VMs: 1, Idle: idle(3)}, 0, "need 0 VMs"},
	} {
		if got, why := c.l.Decide(c.f); got != c.want || !strings.Contains(why, c.words) {
			t.Errorf("%s: Decide = %d, %q, want %d and %q", c.name, got, why, c.want, c.words)
		}
	}
}

// TestIdle: a VM is idle if its workers take from the queues, and none has a job or starts.
func TestIdle(t *testing.T) {
	worker := func(vm, state string, jobs int, queue string) client.Worker {
		return client.Worker{VM: vm, State: state, Jobs: jobs, Queues: []string{queue}}
	}
	silent := worker("set_silent", "process", 0, "jobs")
	silent.Age = time.Hour / 2
	got := Idle([]client.Worker{
		worker("set_b", "process", 0, "jobs"), worker("set_a", "shutdown", 0, "jobs"), worker("set_starts", "start", 0, "jobs"),
		worker("set_busy", "process", 1, "jobs"), worker("set_two", "process", 0, "jobs"), worker("set_two", "process", 2, "jobs"),
		worker("other_a", "process", 0, "jobs"), worker("set_other", "process", 0, "ondemand"), worker("", "process", 0, "jobs"), silent,
	}, "set_", []string{"jobs"})
	if strings.Join(got, " ") != "set_a set_b" {
		t.Errorf("Idle = %q, want set_a and set_b", got)
	}
}
