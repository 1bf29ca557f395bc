package workercmd

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// hangAcknowledgements lets the metadata service ignore acknowledgements until release is
// called, and counts them.
func (c *cloud) hangAcknowledgements() (posts *atomic.Int64, release func()) {
	var released atomic.Bool
	posts = &atomic.Int64{}
	c.metadata.OnRequest(func(r imds.Request) imds.Fault {
		if r.Method != http.MethodPost {
			return imds.Fault{}
		}
		posts.Add(1)
		return imds.Fault{Hang: !released.Load()}
	})
	return posts, func() { released.Store(true) }
}

// reboot announces a reboot of those VMs that a person asked for.
func (c *cloud) reboot(vms ...string) (id string) {
	return c.metadata.Schedule(imds.Event{Type: "Reboot", Resources: vms, Source: "User", NotBefore: time.Now().Add(15 * time.Minute),
		Duration: -time.Second})
}

func (c *cloud) untilStarted(t *testing.T, id string) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if e, ok := c.metadata.Event(id); ok && e.Status == "Started" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("event not started within %s", patience)
		}
	}
}

// TestKilledWhileItAcknowledges: of two processes on one VM, the one that acknowledges is
// killed before the metadata service has its request. The other one acknowledges.
func TestKilledWhileItAcknowledges(t *testing.T) {
	c := newCloud(t, true)
	folder := "--runtime-dir=" + filepath.Join(t.TempDir(), "run")
	all := []*workerProcess{c.start(t, folder, "--instance=0"), c.start(t, folder, "--instance=1")}
	for _, w := range all {
		w.untilState(t, "process")
	}
	posts, release := c.hangAcknowledgements()
	id := c.reboot(testVM)
	const byAnother = "event is acknowledged by another worker of this VM"
	for late := time.Now().Add(patience); len(all[0].find(byAnother))+len(all[1].find(byAnother)) == 0 || posts.Load() == 0; {
		if time.Now().After(late) {
			t.Fatalf("no worker acknowledges the event within %s", patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
	killed, left := all[0], all[1]
	if len(killed.find(byAnother)) > 0 {
		killed, left = left, killed
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
	release()
	left.until(t, "event acknowledged; it may start at any moment")
	c.untilStarted(t, id)
}

// TestDeputyProcess: the process on the leader's VM is killed when it was ready, while a
// worker of another VM is saving. That worker acknowledges when the leader's heartbeat is old.
func TestDeputyProcess(t *testing.T) {
	proof.Only(t, "it waits 45 s for a heartbeat to get old; evictions: TestDeputy does so in virtual time")
	c := newCloud(t, true)
	base := c.endpoint[:len(c.endpoint)-len(testVM)]
	c.metadata.AddVM(imds.VM{Name: "vm_1", VMID: "11112222-0000-0000-0000-000000000001", Priority: "Spot"})
	other := *c
	other.endpoint = base + "vm_1"
	other.put(t, "busy", "stubborn")
	deputy := other.start(t, "--acknowledge=leader")
	deputy.until(t, "job started")
	leader := c.start(t, "--acknowledge=leader")
	leader.untilState(t, "process")
	posts, release := c.hangAcknowledgements()
	id := c.reboot(testVM, "vm_1")
	for late := time.Now().Add(patience); len(leader.find("event not acknowledged yet")) == 0 && posts.Load() == 0; {
		if time.Now().After(late) {
			t.Fatalf("the leader is not ready within %s", patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := leader.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-leader.ended
	release()
	deputy.until(t, "event acknowledged; it may start at any moment")
	c.untilStarted(t, id)
	c.demandReleased(t)
}
