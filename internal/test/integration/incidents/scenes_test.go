//go:build integration

package incidents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/retry"
)

// incident holds the events of a scene. Its alert has to fire.
type incident struct {
	alert string
	not   string // an alert that accuses somebody else and must not fire
	vms   int    // 2 unless it says more

	prepare    func(s *scene, vm string)        // before a worker starts
	storageFor func(s *scene, vm string) string // how a worker reaches storage
	atFirst    func(ctx context.Context, s *scene)
	begin      func(ctx context.Context, s *scene) // at the onset; nil where nothing goes wrong
	each       func(s *scene, tick int)            // after each scrape
}

func incidents() map[string]incident {
	var jumped atomic.Bool
	return map[string]incident{
		"calm": {vms: 3, each: ordinaryLife},
		"storage-outage": {alert: "SpotworkerStorageUnreachable", begin: func(_ context.Context, s *scene) {
			s.refuse(func(storage.Call) bool { return true }, storage.Fault{DropRequest: true})
		}},
		"role-removed": {alert: "SpotworkerStorageDenied", begin: func(_ context.Context, s *scene) {
			s.refuse(func(c storage.Call) bool { return c.Queue == "" }, // of blobs
				storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}})
		}},
		"throttling": {alert: "SpotworkerStorageThrottled", begin: func(_ context.Context, s *scene) {
			var calls atomic.Int64
			s.refuse(func(storage.Call) bool { return calls.Add(1)%5 < 2 }, storage.Fault{Refuse: &storage.Error{Status: 503, Code: "ServerBusy"}})
		}},
		"poison-wave": {alert: "SpotworkerJobsDeadLettered", begin: func(_ context.Context, s *scene) { s.kind.Store("bad") }},
		"sick-vm":     {alert: "SpotworkerMachineFails", vms: 3, begin: func(_ context.Context, s *scene) { s.setFlag("spot_1") }},
		"half-sick-vm": {alert: "SpotworkerMachineFails", not: "SpotworkerKindFails", vms: 3, begin: func(_ context.Context, s *scene) {
			_ = os.WriteFile(s.flagFile("spot_1")+".half", nil, 0o600)
		}},
		"slow-storage": {alert: "SpotworkerStorageSlow", begin: func(_ context.Context, s *scene) {
			s.refuse(func(storage.Call) bool { return true }, storage.Fault{Before: 2 * time.Second})
		}},
		"unknown-kind": {alert: "SpotworkerKindUnknown", begin: func(ctx context.Context, s *scene) {
			s.kind.Store("works")
			s.putJobs(ctx, 3)
			s.kind.Store("work")
		}},
		"no-workers": {
			alert:   "SpotworkerNoWorkers",
			atFirst: func(ctx context.Context, s *scene) { s.putJobs(ctx, 400) },
			begin: func(_ context.Context, s *scene) {
				s.kill()
				s.kill()
			},
		},
		"blind": {alert: "SpotworkerBlind", begin: func(_ context.Context, s *scene) {
			s.local.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: 500} })
		}},
		"degraded-host": {alert: "SpotworkerHostDegraded", begin: func(_ context.Context, s *scene) {
			s.local.Metadata.Schedule(imds.Event{Type: "Redeploy", Source: "Platform", Resources: []string{"spot_1"},
				NotBefore: time.Now().Add(5 * 24 * time.Hour)})
		}},
		"clock-jump": {
			alert: "SpotworkerClockWrong",
			storageFor: func(s *scene, vm string) string {
				if vm != "spot_1" {
					return s.local.ConnectionString
				}
				return wrongClock(s, &jumped)
			},
			begin: func(context.Context, *scene) { jumped.Store(true) },
		},
		"disk-full": {alert: "SpotworkerScratchFull", prepare: smallDisk, begin: func(_ context.Context, s *scene) {
			_ = os.WriteFile(filepath.Join(s.scratch("spot_1"), "full"), make([]byte, 16<<20), 0o600) // writes what there is room for
		}},
		"stuck-job": {
			alert: "SpotworkerJobSilent",
			atFirst: func(ctx context.Context, s *scene) {
				s.kind.Store("stuck")
				s.putJobs(ctx, 1)
				s.kind.Store("work")
			},
			begin: func(_ context.Context, s *scene) { s.setFlag("scene") },
		},
		"unseen-evictions": {
			alert: "SpotworkerEvictionsUnseen", vms: 4,
			atFirst: func(ctx context.Context, s *scene) {
				s.stopped.Store(true)
				s.kind.Store("long")
				s.putJobs(ctx, 8)
			},
			begin: func(ctx context.Context, s *scene) {
				for retry.Sleep(ctx, 15*time.Second) == nil {
					s.start()
					s.kill()
				}
			},
		},
		"jobs-wait": {
			alert: "SpotworkerJobsWait",
			begin: func(ctx context.Context, s *scene) {
				s.putJobs(ctx, 1000)
				s.local.Storage.AgeMessages(s.stores.Queue.Name(), time.Hour)
			},
		},
	}
}

// ordinaryLife is a scene without an incident: evictions with a notice, and restarts.
func ordinaryLife(s *scene, tick int) {
	running := s.fleet.Running()
	switch tick % 24 {
	case 10:
		if len(running) > 0 {
			_, _ = s.local.Metadata.SimulateEviction(running[0].Name) // its worker hands over
			s.start()
		}
	case 12:
		s.kill() // the VM is gone
	}
}

// smallDisk gives the first VM's programs a disk of 8 MiB. It takes root.
func smallDisk(s *scene, vm string) {
	if vm != "spot_1" {
		return
	}
	folder := s.scratch(vm)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "none", folder).CombinedOutput(); err != nil {
		s.t.Errorf("mount: %v: %s", err, out)
		return
	}
	s.t.Cleanup(func() { _ = exec.Command("umount", "-l", folder).Run() })
}
