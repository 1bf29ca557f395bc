package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/zeebo/xxh3"

	"github.com/spotworker/spotworker/bench/probe"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// stateCommand saves and restores one state of random bytes, in a process of its own.
type stateCommand struct {
	Over    string `help:"What saves it." enum:"worker,sdk,hashing" required:""`
	MiB     int    `name:"mib" help:"Size of the state."`
	Storage string `help:"Connection string."`
}

// stateTimes are how long a save and a restore took, and the CPU they used.
type stateTimes struct {
	Save, SaveCPU, Restore, RestoreCPU time.Duration
}

// The settings of the SDK's transfers, as its documents suggest for large blobs.
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
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: c.Storage, Concurrency: checkpoint.Connections, Version: "bench"})
	if err != nil {
		return err
	}
	size := int64(c.MiB) << 20
	sdk := sdkKeeper{account.Container(names().Records).NewBlockBlobClient("state"), size}
	var k keeper
	switch c.Over {
	case "worker":
		k = &claimKeeper{store: checkpoint.NewStore(account.Container(names().Records)), size: size}
	case "sdk":
		k = &sdk
	default:
		k = &hashingKeeper{sdk}
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
func random(size int64) io.Reader { return seeded(size, 1) }

// seeded returns the random bytes of a seed.
func seeded(size int64, seed byte) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), size)
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

// hashingKeeper uses the transfers of the SDK and computes the worker's chunks and hashes,
// with its functions, one after the other: the least that a program can do for a state that
// is verified when it is restored, and whose later saves send only the changes.
type hashingKeeper struct{ sdkKeeper }

func (k *hashingKeeper) save(ctx context.Context) error {
	state := &hashingReader{state: random(k.size), cutter: chunks.New(), unit: xxh3.New(), name: xxh3.New()}
	_, err := k.client.UploadStream(ctx, state, &blockblob.UploadStreamOptions{BlockSize: sdkBlock, Concurrency: sdkParallel})
	return err
}

func (k *hashingKeeper) restore(ctx context.Context) error {
	state := make([]byte, k.size)
	if _, err := k.client.DownloadBuffer(ctx, state, &blob.DownloadBufferOptions{BlockSize: sdkBlock, Concurrency: sdkParallel}); err != nil {
		return err
	}
	for unit := range slices.Chunk(state, hashUnit) {
		_ = xxh3.Hash128(unit)
	}
	return nil
}

// hashUnit is how many bytes of a state have one hash, and hashStep how many are read at a time:
// they stay in the processor's cache for both hashes.
const hashUnit, hashStep = 1 << 20, 64 << 10

// hashingReader cuts and hashes the state while it is read.
type hashingReader struct {
	state  io.Reader
	cutter *chunks.Cutter
	unit   *xxh3.Hasher // of each MiB
	filled int          // bytes of the MiB so far
	name   *xxh3.Hasher
}

// Read implements [io.Reader].
func (r *hashingReader) Read(p []byte) (int, error) {
	read, err := r.state.Read(p[:min(len(p), hashUnit-r.filled, hashStep)])
	_, _ = r.unit.Write(p[:read]) // a hash never returns an error
	if r.filled += read; r.filled == hashUnit {
		r.unit.Sum128()
		r.unit.Reset()
		r.filled = 0
	}
	for rest := p[:read]; len(rest) > 0; {
		n, end := r.cutter.Next(rest)
		_, _ = r.name.Write(rest[:n])
		rest = rest[n:]
		if end != chunks.None {
			r.name.Sum128()
			r.name.Reset()
		}
	}
	return read, err
}

// stateSeries are the measurements of one way to keep a state: MiB a second and CPU
// in ms a MiB.
type stateSeries struct{ save, saveCPU, restore, restoreCPU values }

// stateStorage is a storage that states are kept in.
type stateStorage struct {
	title   string
	latency time.Duration
	tls     bool
}

// measureStates prints the table of large states.
func (b *bench) measureStates(ctx context.Context) error {
	var storages []stateStorage
	for _, latency := range b.Latency {
		storages = append(storages, stateStorage{title: latency.String(), latency: latency})
	}
	if runtime.GOOS == "linux" { // where SSL_CERT_FILE names the authorities
		storages = append(storages, stateStorage{title: b.Latency[0].String() + ", TLS", latency: b.Latency[0], tls: true})
	}
	var table grid
	table.add("Latency", "", "Save, MiB/s", "CPU, ms/MiB", "Restore, MiB/s", "CPU, ms/MiB")
	for _, at := range storages {
		if err := b.measureStatesAt(ctx, at, &table); err != nil {
			return err
		}
	}
	b.say("## A state of %d MiB\n\nAll of it is new. The SDK has %d blocks of 4 MiB in flight. \"With hashes\" computes what the "+
		"worker computes: "+
		"the hashes of the state, the places to cut, and the names of blocks.\n\n%s", b.StateMiB, sdkParallel, &table)
	return nil
}

// measureStatesAt measures each way with one storage, and adds the rows.
func (b *bench) measureStatesAt(ctx context.Context, at stateStorage, table *grid) error {
	ways := []struct{ name, title string }{{"worker", "worker"}, {"sdk", "UploadStream, DownloadBuffer"}, {"hashing", "the same with hashes"}}
	all := make([]stateSeries, len(ways))
	for round := range b.Rounds {
		for i := range ways {
			which := (i + round) % len(ways)
			t, err := b.measureState(ctx, ways[which].name, at)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", ways[which].name, at.title, err)
			}
			b.report("%s, state, %s, round %d: saved in %s, restored in %s", at.title, ways[which].name, round+1, t.Save, t.Restore)
			all[which].add(t, float64(b.StateMiB))
		}
	}
	for i, s := range all {
		table.add(at.title, ways[i].title, s.save.show("%.0f"), s.saveCPU.show("%.1f"), s.restore.show("%.0f"), s.restoreCPU.show("%.1f"))
	}
	for i, title := range []string{1: "worker ÷ SDK", 2: "worker ÷ SDK with hashes"} {
		if title == "" {
			continue
		}
		ours, theirs := all[0], all[i]
		table.add(at.title, title, ours.save.over(theirs.save).show("%.2f"), ours.saveCPU.over(theirs.saveCPU).show("%.2f"),
			ours.restore.over(theirs.restore).show("%.2f"), ours.restoreCPU.over(theirs.restoreCPU).show("%.2f"))
	}
	return nil
}

func (s *stateSeries) add(t stateTimes, mib float64) {
	s.save = append(s.save, mib/t.Save.Seconds())
	s.saveCPU = append(s.saveCPU, t.SaveCPU.Seconds()*1000/mib)
	s.restore = append(s.restore, mib/t.Restore.Seconds())
	s.restoreCPU = append(s.restoreCPU, t.RestoreCPU.Seconds()*1000/mib)
}

func (b *bench) measureState(ctx context.Context, over string, at stateStorage) (t stateTimes, err error) {
	var more, env []string
	if at.tls {
		authority := filepath.Join(b.folder, "authority.pem")
		more, env = []string{"--tls", authority}, []string{"SSL_CERT_FILE=" + authority}
	}
	storage, err := b.startStorage(ctx, at.latency, 0, more...)
	if err != nil {
		return t, err
	}
	defer storage.kill()
	p, err := b.startProcess(ctx, sideCore, env, b.self, "state", "--over", over, "--mib", strconv.Itoa(b.StateMiB), "--storage",
		storage.connectionString)
	if err != nil {
		return t, err
	}
	defer p.kill()
	return t, p.answerWithin(stateTimeout, &t)
}

// stateTimeout bounds a save and a restore.
const stateTimeout = 5 * time.Minute
