//go:build unix

package checkpoint

import (
	"bytes"
	"context"
	goflag "flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/need"
)

var figures = goflag.Bool("figures", false, "measure transfers of large states in real time, side by side with the SDK's own")

// TestTransferFigures measures the same in real time, over loopback, with client and
// storage in this process: medians of interleaved rounds, and the processor time of both
// sides together.
func TestTransferFigures(t *testing.T) {
	need.Flag(t, "figures", *figures) // it takes minutes
	const size, rounds, block, parallel = 256 << 20, 5, 4 << 20, 8
	state := make([]byte, size)
	fillRandom(state, 1)
	for _, latency := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond} {
		account := listen(t, storage.Options{Latency: latency})
		records, job := NewStore(account.Container(recordsName)), 0
		if _, err := account.Container(recordsName).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		fresh := func() *Claim {
			job++
			d := ours
			d.ID = fmt.Sprintf("job-%d", job)
			return records.Fresh(d, "worker-1")
		}
		var saved *Claim
		into := make([]byte, size)
		took := sideBySide(t, rounds, []transfer{
			{"save", func(ctx context.Context) error {
				saved = fresh()
				return saved.Save(ctx, streamed(state))
			}},
			{"UploadStream 4 MiB × 8", func(ctx context.Context) error {
				_, err := records.blob("uploaded").UploadStream(ctx, bytes.NewReader(state), &blockblob.UploadStreamOptions{BlockSize: block,
					Concurrency: parallel})
				return err
			}},
			{"restore", func(ctx context.Context) error { return readGenerated(ctx, saved) }},
			{"DownloadBuffer 4 MiB × 8", func(ctx context.Context) error {
				_, err := records.blob("uploaded").DownloadBuffer(ctx, into, &blob.DownloadBufferOptions{BlockSize: block, Concurrency: parallel})
				return err
			}},
			{"DownloadStream", func(ctx context.Context) error {
				reply, err := records.blob("uploaded").DownloadStream(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = reply.Body.Close() }()
				_, err = io.Copy(io.Discard, reply.Body)
				return err
			}},
		})
		for _, m := range took {
			t.Logf("at %5s a call, %-26s %8s (%s to %s), %4.0f MiB/s, %.2f CPU s/GiB", latency, m.name,
				m.median().Round(time.Millisecond), m.times[0].Round(time.Millisecond), m.times[rounds-1].Round(time.Millisecond),
				size/m.median().Seconds()/(1<<20), m.cpu.Seconds()/rounds*(1<<30)/size)
		}
		t.Logf("at %5s a call, rate of save ÷ UploadStream %.2f, of restore ÷ DownloadBuffer %.2f", latency,
			took[1].median().Seconds()/took[0].median().Seconds(), took[3].median().Seconds()/took[2].median().Seconds())
	}
}

// TestSentFigures measures what changes of a state of 128 MiB send, cut by content and,
// as before, in whole MiBs, and the processor time of each save.
func TestSentFigures(t *testing.T) {
	need.Flag(t, "figures", *figures) // it hashes 4 GiB
	const size = 128 << 20
	t.Log("| State | Change | MiB sent | Calls | In whole MiBs | Calls | CPU, s/GiB | In whole MiBs |")
	t.Log("|---|---|---|---|---|---|---|---|")
	for _, h := range histories(size) {
		states := h.states()
		var m [2]cost.Measured
		var cpu [2]float64
		for i, cutter := range []func() *chunks.Cutter{chunks.New, wholeMiBs} {
			before := processorTime(t)
			m[i] = sent(t, states, cutter)
			cpu[i] = (processorTime(t) - before).Seconds() * (1 << 30) / float64(len(states)*size)
		}
		mib := func(m cost.Measured) float64 { return float64(m.Sent) / (1 << 20) }
		t.Logf("| %s | %s | %.2f | %d | %.2f | %d | %.2f | %.2f |", h.kind, h.change, mib(m[0]), m[0].Calls, mib(m[1]), m[1].Calls, cpu[0],
			cpu[1])
	}
}

// transfer is one way to move a state.
type transfer struct {
	name string
	move func(ctx context.Context) error
}

// taken is the time that the rounds of a transfer took, in ascending order, and their
// processor time.
type taken struct {
	name  string
	times []time.Duration
	cpu   time.Duration
}

func (m taken) median() time.Duration { return m.times[len(m.times)/2] }

// sideBySide runs the transfers in turn, so many times.
func sideBySide(t *testing.T, rounds int, transfers []transfer) []taken {
	t.Helper()
	all := make([]taken, len(transfers))
	for range rounds {
		for i, tr := range transfers {
			runtime.GC()
			before := processorTime(t)
			d, err := timed(t.Context(), tr.move)
			if err != nil {
				t.Fatalf("%s: %v", tr.name, err)
			}
			all[i].name, all[i].times = tr.name, append(all[i].times, d)
			all[i].cpu += processorTime(t) - before
		}
	}
	for i := range all {
		slices.Sort(all[i].times)
	}
	return all
}

// listen returns an account that is served over HTTP on loopback.
func listen(t *testing.T, o storage.Options) *azure.Account {
	t.Helper()
	server := storage.New(o)
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: connection, Concurrency: 128})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return account
}

// processorTime returns the time that this process has spent on processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
