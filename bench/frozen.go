package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// rewrittenMiB is how much of its memory the program rewrites all the time, in pages all over
	// it.
	rewrittenMiB = 50

	pageBytes = 4 << 10

	// memoryTicks are how many steps rewrite all of these pages, and memoryTick is the time of one.
	memoryTicks = 20
	memoryTick  = 20 * time.Millisecond

	// standstill is a pause between two steps that is a freeze. A busy machine makes shorter ones.
	standstill = 300 * time.Millisecond
)

// memoryCommand is a program that saves nothing and has much memory.
type memoryCommand struct {
	MiB     int    `name:"mib" help:"Size of the memory."`
	Resumed string `help:"File for the times at which it stood still."`
}

// Run rewrites pages, and reports whenever it stood still.
func (c *memoryCommand) Run(ctx context.Context) error {
	memory := make([]byte, c.MiB<<20)
	if _, err := io.ReadFull(seeded(int64(len(memory)), 1), memory); err != nil {
		return err
	}
	pages := rewrittenMiB << 20 / pageBytes
	distance := len(memory) / pages
	report, last := resumed{Bytes: int64(len(memory))}, time.Now()
	for step := 0; ctx.Err() == nil; step++ {
		for page := step % memoryTicks; page < pages; page += memoryTicks {
			memory[page*distance]++
		}
		time.Sleep(memoryTick)
		now := time.Now().Round(0) // by the wall clock, which another machine has too
		if stood := now.Sub(last.Round(0)); stood > standstill {
			report.At, report.Frozen = now, append(report.Frozen, stood.Seconds())
			if err := writeResumed(c.Resumed, report); err != nil {
				return err
			}
		}
		last = now
	}
	return nil
}

// measureFrozen prints the table of hand-overs of a program that CRIU freezes.
func (b *bench) measureFrozen(ctx context.Context) error {
	const title = "## A hand-over of a frozen program\n\n"
	tools := filepath.Join(b.root, ".tools", "criu", "bin") // of make integration-tools
	if err := os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+tools); err != nil {
		return err
	}
	if path, _ := exec.LookPath("criu"); path == "" {
		b.say(title + "Not measured: there is no criu in PATH (make integration-tools installs one).\n")
		return nil
	}
	var frozen, release, resume values
	for round := range b.Rounds {
		m, err := b.measureHandover(ctx, largeKind{program: "memory", frozen: true})
		if err != nil {
			return err
		}
		b.report("hand-over of %d MiB of memory, round %d: frozen for %.2f s each time, released after %s, running elsewhere %s later",
			b.CheckpointMiB, round+1, m.frozen, m.release.Round(time.Millisecond), m.resume.Round(time.Millisecond))
		frozen, release, resume = append(frozen, m.frozen...), append(release, m.release.Seconds()), append(resume, m.resume.Seconds())
	}
	var table grid
	table.add("Memory", "Frozen for a snapshot, s", "Notice to released, s", "Released to running elsewhere, s")
	table.add(fmt.Sprintf("%d MiB, %d of them changed in pages", b.CheckpointMiB, rewrittenMiB),
		frozen.show("%.2f"), release.show("%.2f"), resume.show("%.2f"))
	b.say(title+"Both workers and the program on one core, storage at 0 ms on the other. The other worker is idle until then.\n\n%s", &table)
	return nil
}
