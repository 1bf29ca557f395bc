//go:build unix

package checkpoint

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/need"
)

// TestPageFigures measures saves of a state with 1 % of its pages changed at random, by pages and in
// whole blocks side by side, and other saves.
func TestPageFigures(t *testing.T) {
	need.Flag(t, "figures", *figures) // it hashes many GiB
	for _, size := range []int{64 << 20, 1 << 30} {
		state := make([]byte, size)
		fillRandom(state, 1)
		var claims [2]*Claim
		var services [2]*cost.Sink
		for i, page := range []int{blocks.Page, 0} {
			services[i] = &cost.Sink{}
			account, err := azure.Connect(azure.AccountConfig{ConnectionString: storage.New(storage.Options{}).ConnectionString(),
				Transport: services[i]})
			must(t, err)
			store := NewStore(account.Container(recordsName))
			store.page = page
			claims[i] = store.Fresh(ours, "worker-1")
		}
		random, name := rand.New(rand.NewPCG(1, 1)), [2]string{"pages", "whole"}
		for _, change := range []string{"new", "1 page", "1 %", "1 %", "1 %", "1 page", "10 pages", "10 %"} {
			pages := map[string]int{"1 %": size / blocks.Page / 100, "1 page": 1, "10 pages": 10, "10 %": size / blocks.Page / 10}[change]
			for range pages {
				state[random.IntN(size)]++
			}
			for i, c := range claims {
				before := processorTime(t)
				m := services[i].Measure(func() error { return c.Save(t.Context(), streamed(state)) })
				must(t, m.Err)
				t.Logf("%4d MiB, %-8s %s: %8.2f MiB in %4d calls, heap %.0f MiB, %v, CPU %v", size>>20, change, name[i],
					float64(m.Sent)/(1<<20), m.Calls, float64(m.Heap)/(1<<20), m.Took.Round(time.Millisecond),
					(processorTime(t) - before).Round(time.Millisecond))
			}
		}
	}
}
