//go:build integration

package azurite_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
	"github.com/spotworker/spotworker/job"
)

// TestInputs: the names, ETags and hashes in Azurite's listings lead to the same files as
// single blobs', ranges are read under them, and a replaced blob is refused.
func TestInputs(t *testing.T) {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: azurite.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	data := account.Container("data")
	if _, err := data.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	put := func(name string, content []byte) string {
		t.Helper()
		reply, err := data.NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader(content)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(*reply.ETag)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 600_000) // three ranges
	etag := put("in/a b+ü.bin", large)
	put("in/deep/empty", nil)
	f := inputs.New(inputs.Config{Folder: filepath.Join(t.TempDir(), "inputs"), Limit: 1 << 30, Account: account.Container,
		Endpoint: account.Endpoint()})
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	resolve := func(in job.Input) (*inputs.Plan, error) {
		raw, err := json.Marshal([]job.Input{in})
		if err != nil {
			t.Fatal(err)
		}
		return f.Resolve(t.Context(), raw)
	}
	plan, err := resolve(job.Input{Container: "data", Prefix: "in/"})
	if err != nil {
		t.Fatal(err)
	}
	held, err := f.Fetch(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(held.Files) != 2 || held.Files[0].Name != "a b+ü.bin" || held.Files[0].ETag != etag || held.Files[1].Name != "deep/empty" {
		t.Fatalf("files = %+v", held.Files)
	}
	if got, err := os.ReadFile(held.Files[0].File); err != nil || sha256.Sum256(got) != sha256.Sum256(large) {
		t.Errorf("%d bytes, %v, want the blob", len(got), err)
	}
	if single, err := resolve(job.Input{Container: "data", Blob: "in/deep/empty"}); err != nil {
		t.Errorf("a single blob: %v", err)
	} else if again, err := f.Fetch(t.Context(), single); err != nil || again.Files[0].ETag != held.Files[1].ETag {
		t.Errorf("a single blob: %+v, %v, want the ETag of the listing", again, err)
	}
	put("in/a b+ü.bin", []byte("new"))
	if _, err := resolve(job.Input{Container: "data", Blob: "in/a b+ü.bin", ETag: `"0x1"`}); !job.IsPermanent(err) {
		t.Errorf("another version = %v, want a permanent error", err)
	}
}
