//go:build integration

package product

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/integration/azurite"
	"github.com/spotworker/spotworker/job"
)

// TestCompressOnAzurite stops a compress job after its first frame, lets a worker
// resume from there, and has the job done again after its commit.
func TestCompressOnAzurite(t *testing.T) {
	s := open(t, azurite.Start(t))
	for _, name := range []string{"data", "packed"} {
		if _, err := s.Account.Container(name).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	data := bytes.Repeat([]byte("nothing is lost, and nothing is done twice. "), 250_000) // 3 chunks
	if _, err := s.Account.Container("data").NewBlockBlobClient("a/log").UploadBuffer(t.Context(), data, nil); err != nil {
		t.Fatal(err)
	}
	compress := handlers.NewCompress(s.Account.Container, []string{"data"}, []string{"packed"}, slog.New(slog.DiscardHandler))

	payload := []byte(`{"container":"data","blob":"a/log","target_container":"packed"}`)
	spec := job.Spec{ID: "pack", Kind: "compress", Payload: payload, Attempt: 1}
	first := job.New(spec, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	first.OnReport(func(*job.Progress) { cancel(&job.Stop{Reason: job.Evicted}) })
	if _, err := compress.Run(ctx, first); err == nil {
		t.Fatal("compress after its context was cancelled = nil, want an error")
	}
	second, err := compress.Run(t.Context(), job.New(spec, first.Latest()))
	if err != nil {
		t.Fatal(err)
	}
	wantPacked(t, s, second, data)

	metadata := imds.New(imds.Options{})
	service := httptest.NewServer(metadata.Handler())
	t.Cleanup(service.Close)
	start(t, s, metadata, service.URL, "vm_0", job.Kinds{"compress": compress})
	put(t, s, "pack", "compress", string(payload))
	await(t, "job pack done", func() bool { return record(t, s, "pack").Status == checkpoint.Done })
	if third, err := s.Records.Result(t.Context(), "pack"); err != nil || !bytes.Equal(third, second) {
		t.Errorf("result of a run after the commit = %s, %v, want %s", third, err, second)
	}
	put(t, s, "other", "compress", string(payload))
	await(t, "job other refused", func() bool { return record(t, s, "other").Status == checkpoint.Poison })
}

// wantPacked fails the test unless the target unpacks to data.
func wantPacked(t *testing.T, s *deployment.Stores, raw, data []byte) {
	t.Helper()
	var result handlers.CompressResult
	if err := json.Unmarshal(raw, &result); err != nil {
		t.Fatalf("result %q: %v", raw, err)
	}
	reply, err := s.Account.Container(result.TargetContainer).NewBlobClient(result.TargetBlob).DownloadStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	decoder, err := zstd.NewReader(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	if got, err := io.ReadAll(decoder); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the target unpacks to %d bytes, %v, want the %d bytes of the source", len(got), err, len(data))
	}
}
