package evictions

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestWorkersOfAVMStartAtOnce: four workers that start at once, as many as a VM may have,
// request its name once. With the polls, that is what the metadata service answers in a second.
// Where it refuses the newest version of events, the polls are repeated a second later, and the
// workers wait for no longer.
func TestWorkersOfAVMStartAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		newest bool // version of events is served
		within time.Duration
	}{
		"newest version": {true, 100 * time.Millisecond},
		"older version":  {false, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Metadata = imds.New(imds.Options{PreviewEvents: tt.newest})
				guest := b.Metadata.AddVM(rig.SpotVM("vm_0"))
				var names atomic.Int64
				b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
					if strings.HasPrefix(r.Path, "/metadata/instance") {
						names.Add(1)
					}
					return imds.Fault{Delay: 10 * time.Millisecond}
				})
				asTheCommand := func(c *worker.Config) {
					client, err := preempt.NewClient("http://127.0.0.1:1", preempt.WithTransport(guest.RoundTripper()),
						preempt.WithBudget(c.Runtime.Budget()), preempt.WithIdentities(c.Runtime))
					if err != nil {
						t.Fatal(err)
					}
					c.Metadata = client
				}
				var all []*rig.Process
				begun := time.Now()
				for _, instance := range []string{"0", "1", "2", "3"} {
					all = append(all, b.Start("vm_0", job.Kinds{"echo": rig.Echo}, sharedVM(b, path, instance), asTheCommand))
				}
				b.WaitFor("all take work", time.Minute, func() bool {
					return !slices.ContainsFunc(all, func(p *rig.Process) bool { return p.Position().State != lifecycle.Process })
				})
				took := time.Since(begun)
				t.Logf("four workers of a VM that start at once: all take work after %s", took.Round(time.Millisecond))
				if took > tt.within {
					t.Errorf("all take work after %s, want within %s", took, tt.within)
				}
				if got := names.Load(); got != 1 {
					t.Errorf("%d requests for the name, want one for all", got)
				}
				for i, p := range all {
					if want := fmt.Sprintf("vm_0-%s-%d", recorder.VMID[:8], i); p.Name() != want {
						t.Errorf("name = %s, want %s", p.Name(), want)
					}
				}
			})
		})
	}
}
