package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/bench/probe"
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/checkpoint"
)

// stateCommand saves and restores one state of random bytes, in a process of its own.
type stateCommand struct {
	Over    string `help:"What saves it." enum:"worker,sdk" required:""`
	MiB     int    `name:"mib" help:"Size of the state."`
	Storage string `help:"Connection string."`
}

// stateTimes are how long a save and a restore took, and the CPU they used.
type stateTimes struct {
	Save, SaveCPU, Restore, RestoreCPU time.Duration
}

// The settings of the SDK's transfers: what its documents suggest for large blobs.
const (
	sdkBlock    = 4 << 20
	sdkParallel = 8
)

// keeper saves a state and restores it.
type keeper interface {
	save(ctx context.Context) error
	restore(ctx context.Context) error
}

// Run prints the times and returns.
func (c *stateCommand) Run(ctx context.Context) error {
	account, err := azure.Connect(azure.Config{ConnectionString: c.Storage, Version: "bench"})
	if err != nil {
		return err
	}
	size := int64(c.MiB) << 20
	var k keeper = &sdkKeeper{account.Container(names().Records).NewBlockBlobClient("state"), size}
	if c.Over == "worker" {
		k = &claimKeeper{store: checkpoint.NewStore(account.Container(names().Records)), size: size}
	}
	var t stateTimes
	if t.Save, t.SaveCPU, err = timed(ctx, k.save); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if t.Restore, t.RestoreCPU, err = timed(ctx, k.restore); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

func timed(ctx context.Context, do func(context.Context) error) (took, cpu time.Duration, err error) {
	begun, used := time.Now(), probe.Take().CPU
	err = do(ctx)
	return time.Since(begun), probe.Take().CPU - used, err
}

// random returns the same bytes each time, which no chunk repeats.
func random(size int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
}

// claimKeeper saves as the worker does for its jobs.
type claimKeeper struct {
	store *checkpoint.Store
	size  int64
}

func (k *claimKeeper) delivery() checkpoint.Delivery {
	return checkpoint.Delivery{ID: "bench", Kind: "noop", MessageID: "message"}
}

func (k *claimKeeper) save(ctx context.Context) error {
	claim, err := k.store.Create(ctx, k.delivery(), "bench")
	if err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(random(k.size)), nil }
	return claim.Release(ctx, checkpoint.Snapshot{Stream: open})
}

func (k *claimKeeper) restore(ctx context.Context) error {
	found, _, err := k.store.Lookup(ctx, k.delivery())
	if err != nil {
		return err
	}
	claim, err := k.store.Acquire(ctx, k.delivery(), found, "bench")
	if err != nil {
		return err
	}
	state, err := claim.OpenState(ctx)
	if err != nil {
		return err
	}
	defer state.Close()
	got, err := io.Copy(io.Discard, state)
	if err == nil && got != k.size {
		err = fmt.Errorf("restored %d bytes of %d", got, k.size)
	}
	return err
}

// sdkKeeper uses the transfers of the SDK.
type sdkKeeper struct {
	client *blockblob.Client
	size   int64
}

func (k *sdkKeeper) save(ctx context.Context) error {
	_, err := k.client.UploadStream(ctx, random(k.size), &blockblob.UploadStreamOptions{BlockSize: sdkBlock, Concurrency: sdkParallel})
	return err
}

func (k *sdkKeeper) restore(ctx context.Context) error {
	got, err := k.client.DownloadBuffer(ctx, make([]byte, k.size), &blob.DownloadBufferOptions{BlockSize: sdkBlock, Concurrency: sdkParallel})
	if err == nil && got != k.size {
		err = fmt.Errorf("restored %d bytes of %d", got, k.size)
	}
	return err
}

// stateSeries are the measurements of one way to keep a state: MiB a second and CPU
// in ms a MiB.
type stateSeries struct{ save, saveCPU, restore, restoreCPU values }

// measureStates prints the table of large states.
func (b *bench) measureStates(ctx context.Context) error {
	var table grid
	table.add("Latency", "", "Save, MiB/s", "CPU, ms/MiB", "Restore, MiB/s", "CPU, ms/MiB")
	ways := []string{"worker", "sdk"}
	for _, latency := range b.Latency {
		all := make([]stateSeries, len(ways))
		for round := range b.Rounds {
			for i := range ways {
				at := (i + round) % len(ways)
				t, err := b.measureState(ctx, ways[at], latency)
				if err != nil {
					return fmt.Errorf("%s at %s: %w", ways[at], latency, err)
				}
				b.report("%s, state, %s, round %d: saved in %s, restored in %s", latency, ways[at], round+1, t.Save, t.Restore)
				all[at].add(t, float64(b.StateMiB))
			}
		}
		titles := []string{"worker", "UploadStream, DownloadBuffer"}
		for i, s := range all {
			table.add(latency.String(), titles[i], s.save.show("%.0f"), s.saveCPU.show("%.1f"), s.restore.show("%.0f"), s.restoreCPU.show("%.1f"))
		}
		ours, sdk := all[0], all[1]
		table.add(latency.String(), "worker ÷ SDK", ours.save.over(sdk.save).show("%.2f"), ours.saveCPU.over(sdk.saveCPU).show("%.2f"),
			ours.restore.over(sdk.restore).show("%.2f"), ours.restoreCPU.over(sdk.restoreCPU).show("%.2f"))
	}
	b.say("## A state of %d MiB\n\nAll of it is new. The SDK has %d blocks of 4 MiB in flight.\n\n%s", b.StateMiB, sdkParallel, &table)
	return nil
}

func (s *stateSeries) add(t stateTimes, mib float64) {
	s.save = append(s.save, mib/t.Save.Seconds())
	s.saveCPU = append(s.saveCPU, t.SaveCPU.Seconds()*1000/mib)
	s.restore = append(s.restore, mib/t.Restore.Seconds())
	s.restoreCPU = append(s.restoreCPU, t.RestoreCPU.Seconds()*1000/mib)
}

func (b *bench) measureState(ctx context.Context, over string, latency time.Duration) (t stateTimes, err error) {
	storage, err := b.startStorage(ctx, latency, 0)
	if err != nil {
		return t, err
	}
	defer storage.kill()
	p, err := b.startProcess(ctx, sideCore, nil, b.self, "state", "--over", over, "--mib", strconv.Itoa(b.StateMiB), "--storage", storage.connectionString)
	if err != nil {
		return t, err
	}
	defer p.kill()
	return t, p.answerWithin(stateTimeout, &t)
}

// stateTimeout bounds a save and a restore.
const stateTimeout = 5 * time.Minute
