package main

import (
	"time"

	"github.com/spotworker/spotworker/internal/overview"
)

// The activity of the workers in the last ten minutes, in the JSON output of status.

// slotsLine is the use of the slots, and how runs ended.
type slotsLine struct {
	Slots   int     `json:"slots"`
	Handler float64 `json:"handler_seconds"`
	Around  float64 `json:"around_seconds"`
	Idle    float64 `json:"idle_seconds"`
	Closed  float64 `json:"closed_seconds"`
	Done    int     `json:"done"`
	Failed  int     `json:"failed"`
	effortLine

	// Unknown is how many workers do not report their activity.
	Unknown int `json:"unknown_workers"`
}

// effortLine is the time of handlers that ended, by its outcome.
type effortLine struct {
	Committed  float64  `json:"committed_seconds"`
	HandedOver float64  `json:"handed_over_seconds"`
	FailedTime float64  `json:"failed_seconds"`
	Redone     float64  `json:"redone_seconds"`
	Goodput    *float64 `json:"goodput,omitempty"` // left out where no handler ended
}

// kindLine is a kind with jobs that ran.
type kindLine struct {
	Kind        string  `json:"kind"` // "*" stands for kinds that a heartbeat had no room for
	Done        int     `json:"done"`
	Failed      int     `json:"failed"`
	FailedShare float64 `json:"failed_share"`

	// Of the run times of the jobs done; left out if there are none.
	P50 *float64 `json:"p50_seconds,omitempty"`
	P95 *float64 `json:"p95_seconds,omitempty"`
	P99 *float64 `json:"p99_seconds,omitempty"`
	effortLine
}

// vmLine is a VM with its workers.
type vmLine struct {
	Name    string   `json:"name"`
	Workers []string `json:"workers"`
	Life    string   `json:"life"`
	Done    *int     `json:"done,omitempty"` // left out where they are not known
	Failed  *int     `json:"failed,omitempty"`
	Fails   []string `json:"fails,omitempty"` // kinds that nearly always fail on this VM, and not on other VMs
}

func effortLineOf(k overview.Kind) effortLine {
	l := effortLine{Committed: k.Committed.Seconds(), HandedOver: k.HandedOver.Seconds(), FailedTime: k.FailedTime.Seconds(),
		Redone: k.Redone.Seconds()}
	if part, ok := overview.Kept(k.KindActivity); ok {
		l.Goodput = new(part)
	}
	return l
}

// slotsLineOf returns nil if no worker reports its activity.
func slotsLineOf(did *overview.Activity) *slotsLine {
	if did.Known == 0 {
		return nil
	}
	all := did.All()
	return &slotsLine{
		Slots: did.Slots, Handler: did.Handler.Seconds(), Around: did.Around.Seconds(), Idle: did.Idle.Seconds(), Closed: did.Closed.Seconds(),
		Done: all.Done, Failed: all.Failed, effortLine: effortLineOf(overview.Kind{KindActivity: all}), Unknown: did.Unknown,
	}
}

func kindLinesOf(did *overview.Activity) []kindLine {
	lines := []kindLine{}
	for _, k := range did.Kinds {
		l := kindLine{Kind: k.Kind, Done: k.Done, Failed: k.Failed, FailedShare: overview.FailedShare(k.KindActivity),
			effortLine: effortLineOf(k)}
		l.P50, l.P95, l.P99 = secondsOf(k.P50), secondsOf(k.P95), secondsOf(k.P99)
		lines = append(lines, l)
	}
	return lines
}

func secondsOf(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(d.Seconds())
}

func vmLinesOf(did *overview.Activity) []vmLine {
	lines := []vmLine{}
	for _, vm := range did.VMs {
		l := vmLine{Name: vm.Name, Life: vm.Life.String()}
		if vm.Known {
			l.Done, l.Failed = new(vm.Done), new(vm.Failed)
		}
		for _, k := range vm.Fails {
			l.Fails = append(l.Fails, k.Kind)
		}
		for _, w := range vm.Workers {
			l.Workers = append(l.Workers, w.Name)
		}
		lines = append(lines, l)
	}
	return lines
}
