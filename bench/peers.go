package main

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/bench/loop"
)

// peerSlots are the jobs at once of our worker beside the peers.
const peerSlots = 64

// peerTimeout bounds the build of a peer, its downloads included.
const peerTimeout = 5 * time.Minute

// peer is a queue consumer of another project, in the module bench/peers.
type peer struct {
	folder string
	title  string
	copies []int
}

// peers have no more than 8 copies: the issue of each is that one copy takes one
// message, or one batch, after the other.
func peers() []peer {
	return []peer{
		{"dapr", "Dapr binding 1.16", []int{1, 8}},
		{"benthos", "Benthos 4.27", []int{1, 8}},
	}
}

// measurePeers prints the table of peers. A peer that cannot be built, as without a
// network for its modules, is skipped by name.
func (b *bench) measurePeers(ctx context.Context) error {
	sides := []side{b.ours("worker", b.worker)}
	var skipped []string
	for _, p := range peers() {
		binary := filepath.Join(b.folder, p.folder)
		b.report("building %s; its modules are downloaded if they are missing", p.title)
		if err := b.buildPeer(ctx, p, binary); err != nil {
			b.report("%s is skipped: %v", p.title, err)
			skipped = append(skipped, p.title)
			continue
		}
		for _, n := range p.copies {
			sides = append(sides, b.peer(p.title+" × "+strconv.Itoa(n), binary, n))
		}
	}
	var table grid
	table.add("Latency", "", "Jobs/s", "CPU a job, µs", "Calls a job", "Waited", "Worker ÷: rate", "CPU")
	for _, latency := range b.Latency {
		all, err := b.interleave(ctx, sides, latency, peerSlots)
		if err != nil {
			return err
		}
		for i, s := range sides {
			table.add(latency.String(), s.name, all[i].rate.show("%.0f"), all[i].cpu.show("%.0f"), all[i].calls.show("%.2f"),
				all[i].waited.show("%.2f"),
				all[0].rate.over(all[i].rate).show("%.2f"), all[0].cpu.over(all[i].cpu).show("%.2f"))
		}
	}
	b.say("## Peers\n\nThe worker has %d slots. × is the number of components or copies.\n\n%s", peerSlots, &table)
	for _, name := range skipped {
		b.say("%s was skipped: it could not be built here.", name)
	}
	return nil
}

func (b *bench) buildPeer(ctx context.Context, p peer, binary string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	_, err := output(ctx, filepath.Join(b.root, "bench", "peers"), "go", "build", "-o", binary, "./"+p.folder)
	return err
}

// peer starts a program of the module bench/peers.
func (b *bench) peer(name, binary string, copies int) side {
	return side{name, settle, func(ctx context.Context, s *storageProcess, _ int) (*process, error) {
		at := loop.ParseEndpoints(s.connectionString)
		return b.startProcess(ctx, sideCore, []string{
			"BENCH_COPIES=" + strconv.Itoa(copies), "BENCH_QUEUE=" + names().Queue, "BENCH_CONNECTION_STRING=" + s.connectionString,
			"BENCH_ACCOUNT=" + at.Account, "BENCH_KEY=" + at.Key, "BENCH_QUEUE_HOST=" + at.QueueHost(),
		}, binary)
	}}
}
