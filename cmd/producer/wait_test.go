package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
)

// TestNoteWorkers: a wait says that no worker is alive at its start, every ten minutes, and
// again after a worker was alive; an outage in between says nothing.
func TestNoteWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		dead := client.Worker{Name: "vm-1", Age: 5 * time.Minute}
		list := func(context.Context) ([]client.Worker, error) {
			switch at := time.Since(began); {
			case at < 25*time.Minute:
				return []client.Worker{{Name: "vm-0", Age: time.Hour}, dead}, nil
			case at < 30*time.Minute:
				return nil, errors.New("outage")
			case at < 32*time.Minute:
				return []client.Worker{dead, {Name: "vm-2", Age: time.Second, State: "process"}}, nil
			default:
				return nil, nil
			}
		}
		var got []string
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
		defer cancel()
		noteWorkers(ctx, list, func(format string, args ...any) {
			got = append(got, fmt.Sprintf("%v %s", time.Since(began), fmt.Sprintf(format, args...)))
		})
		const none = "no worker is alive, the last heartbeat was written 5m0s ago by vm-1: the jobs wait until one starts"
		want := []string{
			"0s " + none, "10m0s " + none, "20m0s " + none, "30m0s a worker is alive again",
			"32m0s no worker is alive, and no heartbeat was ever written: the jobs wait until one starts",
		}
		if !slices.Equal(got, want) {
			t.Errorf("notes:\n%q\nwant\n%q", got, want)
		}
	})
}

// TestNoteWorkersDenied: an identity that may not read heartbeats is not told about them.
func TestNoteWorkersDenied(t *testing.T) {
	calls := 0
	noteWorkers(t.Context(), func(context.Context) ([]client.Worker, error) {
		calls++
		return nil, &client.DeniedError{Err: errors.New("refused")}
	}, func(format string, _ ...any) { t.Errorf("said %q", format) })
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}
