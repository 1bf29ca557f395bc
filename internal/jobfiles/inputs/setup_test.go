package inputs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a storage account with the container "data", and a machine with a cache.
type bench struct {
	server  *storage.Server
	account *azure.Account
	folder  string

	mu       sync.Mutex
	calls    map[string]int // by operation
	called   func(operation string)
	observed map[string]int64 // files by result, from the observer
}

func setup(t testing.TB) *bench {
	t.Helper()
	b := &bench{server: storage.New(storage.Options{}), folder: filepath.Join(t.TempDir(), "inputs"), calls: map[string]int{},
		observed: map[string]int64{}}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.server.ConnectionString(), Transport: b.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	b.account = account
	if _, err := account.Container("data").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.server.OnResult(func(r storage.Result) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls[r.Operation]++
		if b.called != nil {
			b.called(r.Operation)
		}
	})
	return b
}

// observe counts the files of an event.
func (b *bench) observe(e observe.Event) {
	used := e.(observe.InputsUsed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observed[used.Result] += used.Files
}

// fetcher returns a worker's fetcher on the machine.
func (b *bench) fetcher(t testing.TB, change func(*Config)) *Fetcher {
	t.Helper()
	c := Config{Folder: b.folder, Limit: 1 << 30, Boot: "boot-1", Account: b.account.Container, Private: []string{"spotworker-jobs"},
		Observe: b.observe}
	if change != nil {
		change(&c)
	}
	f := New(c)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// put stores a blob, and returns its ETag.
func (b *bench) put(t testing.TB, name string, data []byte) string {
	t.Helper()
	reply, err := b.account.Container("data").NewBlockBlobClient(name).Upload(t.Context(), streaming.NopCloser(bytes.NewReader(data)),
		&blockblob.UploadOptions{})
	if err != nil {
		t.Fatalf("put blob %s: %v", name, err)
	}
	return string(*reply.ETag)
}

// counted returns the calls of an operation since the last count.
func (b *bench) counted() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = map[string]int{}
	return calls
}

// onCall makes every call to the account call f.
func (b *bench) onCall(f func(operation string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.called = f
}

func (b *bench) took(did string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.observed[did]
	b.observed[did] = 0
	return n
}

func message(t testing.TB, all ...job.Input) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// fetch resolves and fetches inputs.
func fetch(t testing.TB, f *Fetcher, all ...job.Input) (*Held, error) {
	t.Helper()
	plan, err := f.Resolve(t.Context(), message(t, all...))
	if err != nil {
		return nil, err
	}
	return f.Fetch(t.Context(), plan)
}

// mustFetch is fetch for inputs that are there. They are released at the test's end.
func mustFetch(t testing.TB, f *Fetcher, all ...job.Input) *Held {
	t.Helper()
	held, err := fetch(t, f, all...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// contents returns the files in a folder by their paths.
func contents(t testing.TB, held *Held) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, file := range held.Files {
		data, err := os.ReadFile(file.File)
		if err != nil {
			t.Fatal(err)
		}
		if rel, err := filepath.Rel(held.Folder, file.File); err != nil || filepath.ToSlash(rel) != file.Name {
			t.Errorf("file %s is at %s", file.Name, file.File)
		}
		if int64(len(data)) != file.Size {
			t.Errorf("file %s has %d bytes, want %d", file.Name, len(data), file.Size)
		}
		got[file.Name] = string(data)
	}
	return got
}

// content returns bytes that differ from range to range.
func content(size int) []byte {
	data := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(data[i:], uint64(i))
	}
	return data
}
