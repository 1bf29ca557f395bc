package overview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// fleet is a snapshot of workers on VMs of their own, alive unless life says otherwise.
func fleet(workers ...client.Worker) Snapshot {
	s := Snapshot{At: noon}
	for i, w := range workers {
		w.Name, w.State = fmt.Sprintf("vmss_%d-0123abcd-0", i), "process"
		w.VM = fmt.Sprintf("vmss_%d", i)
		s.Workers = append(s.Workers, w)
	}
	return s
}

func runs(kind string, done, failed int) client.Worker {
	return client.Worker{Activity: activityOf(2, client.KindActivity{Kind: kind, Done: done, Failed: failed})}
}

// TestSickVM: a VM is named if nearly all its runs of a kind fail, and other VMs' runs of
// that kind do not. A VM is not named if the kind fails everywhere, or after a few
// failures.
func TestSickVM(t *testing.T) {
	both := runs("a", 0, 8)
	both.Activity.Kinds = append(both.Activity.Kinds, client.KindActivity{Kind: "b", Done: 90})
	for name, row := range map[string]struct {
		workers []client.Worker
		sick    string // the VM
		kind    string // said to fail
	}{
		"one fails all":               {[]client.Worker{runs("a", 30, 1), runs("a", 0, 12), runs("a", 25, 0)}, "vmss_1", ""},
		"one fails nearly all":        {[]client.Worker{runs("a", 30, 1), runs("a", 2, 12)}, "vmss_1", ""},
		"the kind fails everywhere":   {[]client.Worker{runs("a", 1, 20), runs("a", 0, 12)}, "", "a"},
		"the kind runs there alone":   {[]client.Worker{runs("a", 30, 0), runs("b", 0, 12)}, "", "b"},
		"too few to tell":             {[]client.Worker{runs("a", 30, 0), runs("a", 0, 2)}, "", ""},
		"half of few runs":            {[]client.Worker{runs("a", 30, 0), runs("a", 4, 4)}, "", ""},
		"its heartbeat is too old":    {[]client.Worker{runs("a", 30, 0), {Age: 11 * time.Minute, Activity: runs("a", 0, 9).Activity}}, "", ""},
		"others do not say":           {[]client.Worker{{}, runs("a", 0, 12)}, "", "a"},
		"every second run":            {[]client.Worker{runs("a", 40, 1), runs("a", 12, 12), runs("a", 45, 0)}, "vmss_1", ""},
		"every second run everywhere": {[]client.Worker{runs("a", 20, 20), runs("a", 12, 12)}, "", "a"},
		"one kind of two":             {[]client.Worker{runs("a", 30, 1), both}, "vmss_1", ""},
		"a sick VM makes no bad kind": {[]client.Worker{runs("a", 10, 0), runs("a", 0, 90)}, "vmss_1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleet(row.workers...)
			did := s.Activity()
			var sick []string
			for _, vm := range did.VMs {
				if len(vm.Fails) > 0 {
					sick = append(sick, vm.Name)
				}
			}
			if got := strings.Join(sick, " "); got != row.sick {
				t.Errorf("sick VMs = %q, want %q", got, row.sick)
			}
			problems := strings.Join(s.Problems(), "\n")
			if got := strings.Contains(problems, "VM "+row.sick+" fails jobs of kind a: "); got != (row.sick != "") {
				t.Errorf("problems name the sick VM: %t\n%s", got, problems)
			}
			if got := strings.Contains(problems, "kind "+row.kind+" fails: "); got != (row.kind != "") {
				t.Errorf("problems name the kind: %t\n%s", got, problems)
			}
			if row.sick != "" && did.VMs[0].Name != row.sick {
				t.Errorf("the first VM is %s, want the sick one", did.VMs[0].Name)
			}
		})
	}
}

// TestActivityOfFleet: figures of workers are added up; percentiles are over all jobs.
func TestActivityOfFleet(t *testing.T) {
	quick, slow := runs("a", 90, 0), runs("a", 10, 1)
	quick.Activity.Kinds[0].Durations = []client.DurationCount{{UpTo: time.Second, Count: 90}}
	slow.Activity.Kinds[0].Durations = []client.DurationCount{{UpTo: time.Second, Count: 4}, {UpTo: time.Minute, Count: 4},
		{UpTo: time.Hour, Count: 2}}
	ended := runs("a", 1, 0)
	ended.Age = 2 * time.Hour
	s := fleet(quick, slow, client.Worker{}, ended)
	did := s.Activity()
	if did.Known != 2 || did.Unknown != 1 || did.Slots != 4 {
		t.Errorf("known %d, unknown %d, slots %d, want 2, 1, 4", did.Known, did.Unknown, did.Slots)
	}
	if did.Handler+did.Around+did.Idle != 4*Window || did.Closed != 0 {
		t.Errorf("slots did %s, %s, %s, %s, want %s in all", did.Handler, did.Around, did.Idle, did.Closed, 4*Window)
	}
	k := did.Kinds[0]
	if len(did.Kinds) != 1 || k.Done != 100 || k.Failed != 1 || k.P50 != time.Second || k.P95 != time.Minute || k.P99 != time.Hour {
		t.Errorf("kinds = %+v, want a: 100 done, 1 failed, 1s, 1m, 1h", did.Kinds)
	}
}

// TestToClear: the messages that no worker runs yet, at the rate of the workers that take
// from the queue.
func TestToClear(t *testing.T) {
	takes := func(queue string, jobs, done int) client.Worker {
		w := runs("a", done, 0)
		w.Queues, w.Jobs = []string{queue}, jobs
		return w
	}
	s := fleet(takes("jobs", 10, 600), takes("jobs", 10, 600), takes("other", 5, 6000), client.Worker{Queues: []string{"jobs"}})
	s.Workers[0].Kinds, s.Workers[1].Kinds, s.Workers[2].Kinds, s.Workers[3].Kinds = otherKinds, otherKinds, otherKinds, otherKinds
	s.Workers[0].Findings = &client.Findings{WithoutWorker: []client.KindCount{{Kind: "b", Jobs: 5}}}
	for _, row := range []struct {
		queue    string
		messages int
		left     time.Duration
		ok       bool
	}{
		{"jobs", 145, time.Minute, true}, {"jobs", 25, 0, false}, {"jobs", 0, 0, false}, {"poison", 100, 0, false},
	} {
		left, ok := s.ToClear(client.Queue{Name: row.queue, Messages: row.messages})
		if left != row.left || ok != row.ok {
			t.Errorf("ToClear(%s, %d) = %s, %t, want %s, %t", row.queue, row.messages, left, ok, row.left, row.ok)
		}
	}
}
