//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// stateCommand saves and restores one state of random bytes, in a process of its own.
type stateCommand struct {
	Over    string `help:"What saves it." enum:"worker,sdk" required:""`
	MiB     int    `name:"mib" help:"Size of the state."`
	Storage string `help:"Connection string." env:"AZURE_STORAGE_CONNECTION_STRING"`
}

// The settings of the SDK's transfers, as its documents suggest for large blobs.
const (
	sdkBlock    = 4 << 20
	sdkParallel = 8
)

// keeper saves a state and restores it.
type keeper interface {
	save(ctx context.Context) error
	restore(ctx context.Context) (size int64, err error)
}

// Run prints the figures and returns.
func (c *stateCommand) Run(ctx context.Context) error {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: c.Storage, Concurrency: checkpoint.Connections, Version: "bench"})
	if err != nil {
		return err
	}
	size, records := int64(c.MiB)<<20, account.Container(names().Records)
	var k keeper = &sdkKeeper{client: records.NewBlockBlobClient("state"), size: size}
	if c.Over == "worker" {
		k = &claimKeeper{checkpoint.NewStore(records), size}
	}
	restore := func(ctx context.Context) error {
		got, err := k.restore(ctx)
		if err == nil && got != size {
			err = fmt.Errorf("restored %d bytes of %d", got, size)
		}
		return err
	}
	var figures []float64
	for _, do := range []func(context.Context) error{k.save, restore, restore} {
		begun, used := time.Now(), ownTime()
		if err := do(ctx); err != nil {
			return err
		}
		figures = append(figures, float64(c.MiB)/time.Since(begun).Seconds(), (ownTime()-used).Seconds()*1000/float64(c.MiB))
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails only for a bad argument
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// seeded returns the random bytes of a seed, which no chunk repeats.
func seeded(size int64, seed byte) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), size)
}

// claimKeeper saves as the worker does for its jobs.
type claimKeeper struct {
	store *checkpoint.Store
	size  int64
}

var stateDelivery = checkpoint.Delivery{ID: "bench", Kind: "noop", MessageID: "message"}

func (k *claimKeeper) save(ctx context.Context) error {
	claim, err := k.store.Create(ctx, stateDelivery, "bench")
	if err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(seeded(k.size, 1)), nil }
	return claim.Release(ctx, checkpoint.Snapshot{Stream: open})
}

func (k *claimKeeper) restore(ctx context.Context) (int64, error) {
	found, _, err := k.store.Lookup(ctx, stateDelivery)
	if err != nil {
		return 0, err
	}
	claim, err := k.store.Acquire(ctx, stateDelivery, found, "bench")
	if err != nil {
		return 0, err
	}
	state, err := claim.OpenState(ctx)
	if err != nil {
		return 0, err
	}
	defer state.Close()
	return io.Copy(io.Discard, state)
}

// sdkKeeper uses the transfers of the SDK.
type sdkKeeper struct {
	client *blockblob.Client
	size   int64
	buffer []byte // of the first restore, for the next one
}

func (k *sdkKeeper) save(ctx context.Context) error {
	_, err := k.client.UploadStream(ctx, seeded(k.size, 1), &blockblob.UploadStreamOptions{BlockSize: sdkBlock, Concurrency: sdkParallel})
	return err
}

func (k *sdkKeeper) restore(ctx context.Context) (int64, error) {
	if k.buffer == nil {
		k.buffer = make([]byte, k.size)
	}
	return k.client.DownloadBuffer(ctx, k.buffer, &blob.DownloadBufferOptions{BlockSize: sdkBlock, Concurrency: sdkParallel})
}

// measureStates prints the table of large states.
func (b *bench) measureStates(ctx context.Context) error {
	t := &table{figures: []figure{{"Save, MiB/s", "%.0f", true}, {"CPU, ms/MiB", "%.1f", true}, {"Restore, MiB/s", "%.0f", true},
		{"CPU, ms/MiB", "%.1f", true}, {"Again, MiB/s", "%.0f", true}, {"CPU, ms/MiB", "%.1f", true}}}
	for _, latency := range b.Latency {
		over := func(name string) func(context.Context) ([]float64, error) {
			return func(ctx context.Context) ([]float64, error) { return b.measureState(ctx, name, latency) }
		}
		err := b.compare(ctx, t, latency.String(), side{"worker", over("worker")}, side{"UploadStream, DownloadBuffer", over("sdk")})
		if err != nil {
			return err
		}
	}
	b.print(t, fmt.Sprintf("A state of %d MiB", b.StateMiB),
		fmt.Sprintf("All of it is new. The SDK has %d blocks of 4 MiB in flight. Its second restore is into the buffer of the first.",
			sdkParallel))
	return nil
}

func (b *bench) measureState(ctx context.Context, over string, latency time.Duration) (figures []float64, err error) {
	s, err := b.startStorage(ctx, latency, 0, "noop")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	p, err := b.startProcess(ctx, sideCore, connect(s), b.self, "state", "--over", over, "--mib", strconv.Itoa(b.StateMiB))
	if err != nil {
		return nil, err
	}
	defer p.kill()
	err = p.answer(&figures)
	return figures, err
}
