package storage

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
)

// elapsed is how many seconds passed since began, to the millisecond.
func elapsed(began time.Time) float64 { return time.Since(began).Round(time.Millisecond).Seconds() }

func wantSeconds(t *testing.T, doing string, began time.Time, want float64) {
	t.Helper()
	if got := elapsed(began); got != want {
		t.Errorf("%s took %gs, want %gs", doing, got, want)
	}
}

// upload puts a blob of n bytes.
func (a *fixture) upload(ctx context.Context, name string, n int) error {
	_, err := a.blob(name).Upload(ctx, text(strings.Repeat("x", n)), nil)
	return err
}

// download reads a blob to its end and returns how much came.
func (a *fixture) download(ctx context.Context, name string) (int64, error) {
	res, err := a.blob(name).DownloadStream(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return io.Copy(io.Discard, res.Body)
}

func TestBandwidthPacesBodiesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 1000, Down: 4000}})
		began := time.Now()
		if err := a.upload(t.Context(), "b", 10_000); err != nil {
			t.Fatalf("Upload: %v", err)
		}
		wantSeconds(t, "10,000 bytes up at 1,000 bytes/s", began, 10)

		began = time.Now()
		if n, err := a.download(t.Context(), "b"); n != 10_000 || err != nil {
			t.Fatalf("download = %d bytes, %v, want 10000", n, err)
		}
		wantSeconds(t, "10,000 bytes down at 4,000 bytes/s", began, 2.5)
	})
}

func TestBodyTrickles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		if err := a.upload(t.Context(), "b", 1000); err != nil {
			t.Fatalf("Upload: %v", err)
		}
		a.SetBandwidth(Bandwidth{Up: 100, Down: 100})

		began := time.Now()
		res, err := a.blob("b").DownloadStream(t.Context(), nil)
		if err != nil {
			t.Fatalf("DownloadStream: %v", err)
		}
		wantSeconds(t, "the head of the reply", began, 0)
		if _, err := io.ReadFull(res.Body, make([]byte, 250)); err != nil {
			t.Fatalf("read: %v", err)
		}
		wantSeconds(t, "the first 250 bytes", began, 2.5)

		body := &countingBody{ReadSeekCloser: text(strings.Repeat("x", 1000))}
		done := make(chan error, 1)
		go func() {
			_, err := a.blob("c").Upload(t.Context(), body, nil)
			done <- err
		}()
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if got := body.count(); got < 500 || got > 502 {
			t.Errorf("after 5s %d bytes of the upload are under way, want 500 and a piece at most", got)
		}
		if err := <-done; err != nil {
			t.Errorf("Upload: %v", err)
		}
	})
}

// countingBody counts the bytes read of it.
type countingBody struct {
	io.ReadSeekCloser
	mu sync.Mutex
	n  int
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadSeekCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += n
	return n, err
}

func (b *countingBody) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func TestBandwidthIsSharedEvenlyByTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 1000}})
		began := time.Now()
		var ends sync.Map
		var all sync.WaitGroup
		for _, u := range []struct {
			name string
			size int
		}{{"large", 6000}, {"small", 2000}} {
			all.Go(func() {
				if err := a.upload(t.Context(), u.name, u.size); err != nil {
					t.Errorf("upload %s: %v", u.name, err)
				}
				ends.Store(u.name, elapsed(began))
			})
		}
		all.Wait()
		// Side by side each has half until the small one is done.
		if got, _ := ends.Load("small"); got.(float64) < 3.9 || got.(float64) > 4 {
			t.Errorf("2,000 bytes beside 6,000 took %vs, want 4s: half of 1,000 bytes/s", got)
		}
		if got, _ := ends.Load("large"); got != 8.0 {
			t.Errorf("both together took %vs, want 8s", got)
		}
	})
}

func TestFaultLimitsTheBandwidthOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 500}})
		a.OnCall(func(c Call) Fault {
			switch c.Blob {
			case "slow":
				return Fault{Bandwidth: Bandwidth{Up: 100, Down: 50}}
			case "no faster":
				return Fault{Bandwidth: Bandwidth{Up: 100_000}}
			}
			return Fault{}
		})
		for name, want := range map[string]float64{"slow": 10, "no faster": 2, "other": 2} {
			began := time.Now()
			if err := a.upload(t.Context(), name, 1000); err != nil {
				t.Fatalf("upload %s: %v", name, err)
			}
			wantSeconds(t, "1,000 bytes up, "+name, began, want)
		}
		for name, want := range map[string]float64{"slow": 20, "other": 0} {
			began := time.Now()
			if n, err := a.download(t.Context(), name); n != 1000 || err != nil {
				t.Fatalf("download %s = %d bytes, %v", name, n, err)
			}
			wantSeconds(t, "1,000 bytes down, "+name, began, want)
		}
	})
}

func TestUploadThatIsCancelledHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 100}})
		var results []Result
		a.OnResult(func(r Result) { results = append(results, r) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := a.upload(ctx, "b", 501); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("upload = %v, want %v", err, context.DeadlineExceeded)
		}
		wantSeconds(t, "the upload", began, 5)
		if _, _, exists := a.ReadBlob("records", "b"); exists {
			t.Errorf("the blob exists, want none: its last byte did not arrive")
		}
		if len(results) != 1 || results[0].Operation != blobs.OpPutBlob || results[0].Status != 0 {
			t.Errorf("results = %+v, want one PutBlob with status 0", results)
		}
	})
}

func TestDownloadThatIsCancelledStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Down: 1}})
		if err := a.upload(t.Context(), "b", 1000); err != nil {
			t.Fatalf("upload: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		began := time.Now()
		n, err := a.download(ctx, "b")
		if n != 3 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("download = %d bytes, %v, want 3 and %v", n, err, context.DeadlineExceeded)
		}
		wantSeconds(t, "the download", began, 3.5)
	})
}

func TestBandwidthCanBeChangedUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 1}})
		began := time.Now()
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			all.Go(func() {
				if err := a.upload(t.Context(), name, 1000); err != nil {
					t.Errorf("upload %s: %v", name, err)
				}
			})
		}
		time.Sleep(90 * time.Second)
		a.SetBandwidth(Bandwidth{Up: 1_000_000})
		all.Wait()
		if got := elapsed(began); got > 90.11 {
			t.Errorf("3,000 bytes ended %gs after the link became a fast one, want 0.1s", got-90)
		}

		began = time.Now()
		all.Go(func() {
			time.Sleep(time.Second)
			a.SetBandwidth(Bandwidth{Down: 10})
		})
		a.SetBandwidth(Bandwidth{Down: 100})
		if _, err := a.download(t.Context(), "a"); err != nil {
			t.Errorf("download: %v", err)
		}
		if got := elapsed(began); got < 90 || got > 92 {
			t.Errorf("1,000 bytes, 100 of them in the first second and then 10 a second, took %gs, want about 91s", got)
		}
		all.Wait()
	})
}

// A link does not save up the unused bandwidth of a slow reader.
func TestReaderThatSleptGetsNoMoreThanTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Down: 100}})
		if err := a.upload(t.Context(), "b", 1000); err != nil {
			t.Fatalf("upload: %v", err)
		}
		res, err := a.blob("b").DownloadStream(t.Context(), nil)
		if err != nil {
			t.Fatalf("DownloadStream: %v", err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 100)); err != nil {
			t.Fatalf("read: %v", err)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		if n, err := io.Copy(io.Discard, res.Body); n != 900 || err != nil {
			t.Fatalf("read the rest = %d bytes, %v", n, err)
		}
		if got := elapsed(began); got < 8.9 {
			t.Errorf("900 bytes at 100 bytes/s after a pause took %gs, want 9s", got)
		}
	})
}

func TestRefusedBodyIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 1}})
		began := time.Now()
		res, _ := send(a.Queue(), a.signed("POST", messagesPath, strings.Repeat("x", 1<<20)))
		wantReply(t, "POST of 1 MiB", res, 413, "RequestBodyTooLarge")
		wantSeconds(t, "the refusal", began, 0)
	})
}

// The body is small, so that net/http would keep all of it back unless each
// piece is flushed.
func TestDownloadOverHTTPTrickles(t *testing.T) {
	a := setupHTTP(t)
	if err := a.upload(t.Context(), "b", 1000); err != nil {
		t.Fatalf("upload: %v", err)
	}
	download := func(rate int64) io.ReadCloser {
		a.SetBandwidth(Bandwidth{Down: rate})
		res, err := a.blob("b").DownloadStream(t.Context(), nil)
		if err != nil {
			t.Fatalf("DownloadStream: %v", err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res.Body
	}
	slow := download(1)
	guard := time.AfterFunc(time.Minute, func() { _ = slow.Close() }) // a busy machine is slow; all of it takes 17 minutes
	if _, err := io.ReadFull(slow, make([]byte, 1)); err != nil {
		t.Errorf("read at 1 byte/s: %v, want the first byte long before the last", err)
	}
	guard.Stop()
	began := time.Now()
	if n, err := io.Copy(io.Discard, download(500)); n != 1000 || err != nil {
		t.Fatalf("download = %d bytes, %v", n, err)
	}
	if got := time.Since(began); got < 1990*time.Millisecond {
		t.Errorf("1,000 bytes at 500 bytes/s took %s, want 2s", got)
	}
}

func TestCloseEndsBodiesThatTrickle(t *testing.T) {
	a := setupHTTP(t)
	if err := a.upload(t.Context(), "b", 1<<20); err != nil {
		t.Fatalf("upload: %v", err)
	}
	a.SetBandwidth(Bandwidth{Up: 1, Down: 1})
	var arrived, done sync.WaitGroup
	arrived.Add(2)
	a.OnCall(func(Call) Fault { arrived.Done(); return Fault{} })
	done.Go(func() {
		if err := a.upload(t.Context(), "c", 1<<20); err == nil {
			t.Errorf("upload succeeded, want its connection cut")
		}
	})
	done.Go(func() {
		if _, err := a.download(t.Context(), "b"); err == nil {
			t.Errorf("download succeeded, want its connection cut")
		}
	})
	arrived.Wait()
	if err := a.Close(); err != nil { // at once: 1 MiB at 1 byte/s would take 12 days
		t.Errorf("Close: %v", err)
	}
	done.Wait()
}
