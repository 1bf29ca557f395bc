//go:build unix

package program

import (
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestBadNeighbours: beside programs that do anything, a good program comes to its
// result, and nothing of any is left.
func TestBadNeighbours(t *testing.T) {
	proof.Only(t, "it fills memory and process tables in real time")
	b := setup(t)
	bad := []Kind{
		b.kind("fills the disk"), b.kind("flood"), b.kind("forks"), b.kind("large result"), b.kind("linked checkpoint"),
		b.kind("exit", "CODE=1"), b.kind("signal", "SIGNAL=11"), b.kind("half"), b.kind("locks itself out"),
	}
	bad[0].Disk = 1 << 20
	missing := b.kind("exit")
	missing.Command = []string{"/no/such/program"}
	var all []*work
	for _, k := range append(bad, missing) {
		all = append(all, b.begin(k, "", nil))
	}
	good := b.run(b.kind("count", "N=50"), "", nil)
	if good.err != nil || string(good.result) != "1225" {
		t.Errorf("the good program = %q, %v, want 1225", good.result, good.err)
	}
	for _, w := range append(all, good) {
		w.wait(t)
		w.Close()
	}
	b.wantNoFolders()
}
