package events

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/preempt"
)

// TestAwaited is the leader's rule.
func TestAwaited(t *testing.T) {
	at := time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)
	e := preempt.Event{ID: "E", NotBefore: at, Resources: []string{"web", "web-1"}}
	ready, earlier := presence.Ready{ID: "e", NotBefore: at}, presence.Ready{ID: "e", NotBefore: at.Add(-time.Hour)}
	other := presence.Ready{ID: "F", NotBefore: at}
	worker := func(vm, instance string, age time.Duration, events ...presence.Ready) presence.Listed {
		return presence.Listed{Presence: presence.Presence{Worker: vm + "-" + instance, Machine: presence.Machine{VM: vm},
			Ready: events}, Age: age}
	}
	ended := func(vm, instance string, age time.Duration) presence.Listed {
		p := worker(vm, instance, age)
		p.State = "stopped"
		return p
	}
	for _, row := range []struct {
		name string
		seen []presence.Listed
		want []string
	}{
		{"all ready", []presence.Listed{worker("web", "0", 0, ready), worker("WEB-1", "0", freshFor, other, ready)}, nil},
		{"several on a VM", []presence.Listed{worker("web", "0", 0, ready), worker("web", "1", 0, ready), worker("web-1", "0", 0, ready)}, nil},
		{
			"one of several is not", []presence.Listed{worker("web", "0", 0, ready), worker("web", "1", 0), worker("web-1", "0", 0, ready)},
			[]string{"worker web-1 of VM web is not ready"},
		},
		{
			"one of several is long gone", []presence.Listed{worker("web", "0", 0, ready), worker("web", "1", freshFor+1),
				worker("web-1", "0", 0, ready)}, nil,
		},
		{
			"a VM is silent", []presence.Listed{worker("web", "0", 0, ready), worker("web-1", "0", freshFor+1, earlier)},
			[]string{"no worker of VM web-1 has been heard of for 45s"},
		},
		{"a VM left, and is silent", []presence.Listed{worker("web", "0", 25*time.Hour, ready), worker("web-1", "0", 0, ready)}, nil},
		{
			"one of its workers left", []presence.Listed{worker("web", "0", freshFor+1, ready), worker("web", "1", freshFor+1),
				worker("web-1", "0", 0, ready)}, nil,
		},
		{
			"silent, but jobs may return", []presence.Listed{worker("web", "0", goneAfter-1), worker("web", "1", goneAfter+1),
				worker("web-1", "0", 0, ready)}, []string{"no worker of VM web has been heard of for 45s"},
		},
		{
			"gone", []presence.Listed{worker("web", "0", goneAfter), worker("web", "1", forgottenAfter), worker("web-1", "0", 0, ready)}, nil,
		},
		{"ended", []presence.Listed{ended("web", "0", time.Second), worker("web-1", "0", 0, ready)}, nil},
		{"ended a while ago", []presence.Listed{ended("web", "0", forgottenAfter-1), worker("web-1", "0", 0, ready)}, nil},
		{
			"ended beside another", []presence.Listed{ended("web", "0", 0), worker("web", "1", 0), worker("web-1", "0", 0, ready)},
			[]string{"worker web-1 of VM web is not ready"},
		},
		{
			"ended long ago", []presence.Listed{ended("web", "0", forgottenAfter), worker("web-1", "0", 0, ready)},
			[]string{"no worker of VM web has been heard of for 45s"},
		},
		{
			"forgotten", []presence.Listed{worker("web", "0", forgottenAfter), worker("web-1", "0", 0, ready)},
			[]string{"no worker of VM web has been heard of for 45s"},
		},
		{
			"a longer name does not speak for a shorter", []presence.Listed{worker("web-1", "0", 0, ready), worker("web_1", "0", 0, ready)},
			[]string{"no worker of VM web has been heard of for 45s"},
		},
		{
			"ready for what was before", []presence.Listed{worker("web", "0", 0, earlier), worker("web-1", "0", 0, other)},
			[]string{"worker web-0 of VM web is not ready", "worker web-1-0 of VM web-1 is not ready"},
		},
		{"no worker", nil, []string{"no worker of VM web has been heard of for 45s", "no worker of VM web-1 has been heard of for 45s"}},
	} {
		if diff := cmp.Diff(row.want, awaited(e, row.seen)); diff != "" {
			t.Errorf("%s: awaited (-want +got)\n%s", row.name, diff)
		}
	}
	twice := e
	twice.Resources = []string{"web", "WEB"}
	if got := awaited(twice, nil); len(got) != 1 {
		t.Errorf("awaited for a VM named twice = %v, want it once", got)
	}
}
