package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/upload"
	"github.com/spotworker/spotworker/job"
)

// uploaded returns the content of a blob in the version that an input names.
func (b *rig) uploaded(t *testing.T, in job.Input) string {
	t.Helper()
	reply, err := b.stores.Account.Container(in.Container).NewBlobClient(in.Blob).DownloadStream(t.Context(), &blob.DownloadStreamOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: version(in)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reply.Body)
	if err := errors.Join(err, reply.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestUpload: a content of any length is stored, in as many calls as are documented, and the
// input that is returned names its version.
func TestUpload(t *testing.T) {
	const some = 2*upload.BlockSize + 3
	for name, row := range map[string]struct {
		length int
		known  bool
		calls  int64
	}{
		"empty":          {0, false, 2},
		"short":          {5, true, 2},
		"long":           {some, true, 5},
		"unknown length": {some, false, 5},
	} {
		t.Run(name, bubble(func(t *testing.T) { // where no call is slow, and so none is repeated
			b := setup(t)
			if _, err := b.stores.Account.Container("scenes").Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			b.server.ResetCounts()
			content, o := strings.Repeat("x", row.length), UploadOptions{}
			if row.known {
				o.Size = int64(row.length)
			}
			to := job.Input{Container: "scenes", Blob: "a/b.json", To: "b"}
			in, err := b.Upload(t.Context(), to, io.MultiReader(strings.NewReader(content)), o)
			if err != nil {
				t.Fatal(err)
			}
			calls := int64(0)
			for _, n := range b.server.Counts() {
				calls += n
			}
			if calls != row.calls {
				t.Errorf("calls = %v, want %d", b.server.Counts(), row.calls)
			}
			if in.To != "b" || in.ETag == "" || b.uploaded(t, in) != content {
				t.Errorf("input = %+v, want the stored version", in)
			}
		}))
	}
}

// bubble runs a test with a virtual clock.
func bubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// TestUploadIsRefused: no upload replaces a blob, makes a container or touches the
// deployment's own unasked, and each error can be told apart.
func TestUploadIsRefused(t *testing.T) {
	b := setup(t)
	broken := errors.New("a bad disk")
	scene := job.Input{Container: "scenes", Blob: "a"}
	send := func(in job.Input, text string, o UploadOptions) (job.Input, error) {
		return b.Upload(t.Context(), in, strings.NewReader(text), o)
	}
	if _, err := send(scene, "1", UploadOptions{}); !errors.Is(err, ErrNoContainer) {
		t.Errorf("Upload without a container = %v, want ErrNoContainer", err)
	}
	if _, err := send(scene, "1", UploadOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := send(scene, "2", UploadOptions{Create: true}); !errors.Is(err, ErrExists) {
		t.Errorf("Upload over a blob = %v, want ErrExists", err)
	}
	replaced, err := send(scene, "3", UploadOptions{Replace: true})
	if err != nil || b.uploaded(t, replaced) != "3" {
		t.Errorf("Upload with Replace = %+v, %v", replaced, err)
	}
	for _, in := range []job.Input{
		{}, {Container: "scenes"}, {Container: "scenes", Prefix: "a"}, {Container: "Scenes", Blob: "a"}, {Container: "scenes", Blob: `a\b`},
		{Container: "scenes", Blob: "a", Account: "https://other.blob.core.windows.net"}, {Container: b.stores.Names.Records, Blob: "a"},
	} {
		b.server.ResetCounts()
		if _, err := send(in, "x", UploadOptions{Create: true, Replace: true}); err == nil || len(b.server.Counts()) > 0 {
			t.Errorf("Upload to %+v = %v after calls %v, want an error before any", in, err, b.server.Counts())
		}
	}
	_, err = b.Upload(t.Context(), job.Input{Container: "scenes", Blob: "b"}, iotest.ErrReader(broken), UploadOptions{})
	if !errors.Is(err, broken) {
		t.Errorf("Upload of an unreadable content = %v, want its error", err)
	}
	b.server.OnCall(func(c storage.Call) (f storage.Fault) {
		if c.Operation == storage.OpPutBlob {
			f.Refuse = &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}
		}
		return f
	})
	_, err = send(job.Input{Container: "scenes", Blob: "c"}, "1", UploadOptions{})
	if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Role != "Storage Blob Data Contributor" {
		t.Errorf("Upload that is refused = %v, want a DeniedError with the role", err)
	}
}

// TestUploadLooksFirst: no content is sent that the account would not store, and no container is
// created unless it is missing.
func TestUploadLooksFirst(t *testing.T) {
	b := setup(t)
	scene := job.Input{Container: "scenes", Blob: "a"}
	once := true
	b.server.OnCall(func(c storage.Call) (f storage.Fault) { // the container appears, and the answer is lost
		f.DropReply, once = once && c.Operation == storage.OpCreateContainer, once && c.Operation != storage.OpCreateContainer
		return f
	})
	if _, err := b.Upload(t.Context(), scene, strings.NewReader("x"), UploadOptions{Create: true, Size: 1}); err != nil {
		t.Fatalf("Upload to a container that exists by now = %v", err)
	}
	for name, row := range map[string]struct {
		denied string
		to     job.Input
		want   error
	}{
		"the blob exists":       {"", scene, ErrExists},
		"the look is denied":    {storage.OpGetBlobProperties, job.Input{Container: "scenes", Blob: "b"}, ErrDenied},
		"no container is made":  {storage.OpCreateContainer, job.Input{Container: "more", Blob: "b"}, ErrDenied},
		"another look, no more": {storage.OpGetBlobProperties, job.Input{Container: "more", Blob: "b"}, ErrDenied},
	} {
		refuse(b.server, row.denied)
		b.server.ResetCounts()
		sent := false
		content := &meanwhile{do: func() { sent = true }, then: strings.NewReader(strings.Repeat("x", upload.BlockSize+1))}
		_, err := b.Upload(t.Context(), row.to, content, UploadOptions{Create: true, Size: upload.BlockSize + 1})
		if !errors.Is(err, row.want) || sent {
			t.Errorf("%s: Upload = %v, with content sent: %t; want %v before any is", name, err, sent, row.want)
		}
		if n := b.server.Counts()[storage.OpCreateContainer]; n > 0 && row.denied != storage.OpCreateContainer {
			t.Errorf("%s: the container is created by %d calls", name, n)
		}
	}
}

// TestUploadAgain: a blob with the same content counts as uploaded, of known or unknown length.
func TestUploadAgain(t *testing.T) {
	b := setup(t)
	to, content := job.Input{Container: "scenes", Blob: "a"}, strings.Repeat("x", 64<<10)
	first, err := b.Upload(t.Context(), to, strings.NewReader(content), UploadOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{content: nil, content[1:]: ErrExists, content + "x": ErrExists, content[1:] + "y": ErrExists} {
		for _, size := range []int{0, len(text)} {
			again, err := b.Upload(t.Context(), to, strings.NewReader(text), UploadOptions{Size: int64(size)})
			if !errors.Is(err, want) || err == nil && again != first {
				t.Errorf("Upload of %d bytes, said to be %d, = %+v, %v, want %v", len(text), size, again, err, want)
			}
		}
	}
	broken := errors.New("a bad disk")
	if _, err := b.Upload(t.Context(), to, iotest.ErrReader(broken), UploadOptions{}); !errors.Is(err, broken) {
		t.Errorf("Upload of an unreadable content = %v, want its error", err)
	}
}

// TestUploadWithRivals: a blob that appears meanwhile is never replaced, and the blob of the
// same upload, whose answer was lost, is no rival.
func TestUploadWithRivals(t *testing.T) {
	for _, length := range []int{5, upload.BlockSize + 3} {
		b := setup(t)
		to := job.Input{Container: "scenes", Blob: "a"}
		var once sync.Once
		b.server.OnCall(func(c storage.Call) (f storage.Fault) {
			if c.Operation == storage.OpPutBlob || c.Operation == storage.OpPutBlockList {
				once.Do(func() { f.DropReply = true })
			}
			return f
		})
		content := strings.Repeat("x", length)
		in, err := b.Upload(t.Context(), to, strings.NewReader(content), UploadOptions{Create: true})
		if err != nil || b.uploaded(t, in) != content {
			t.Errorf("Upload of %d bytes whose answer was lost = %+v, %v", length, in, err)
		}

		to.Blob = "b"
		rival := func() {
			if _, err := b.stores.Account.Container("scenes").NewBlockBlobClient("b").UploadBuffer(t.Context(), []byte("rival"), nil); err != nil {
				t.Error(err)
			}
		}
		_, err = b.Upload(t.Context(), to, &meanwhile{do: rival, then: strings.NewReader(content)}, UploadOptions{})
		if !errors.Is(err, ErrExists) || b.uploaded(t, to) != "rival" {
			t.Errorf("Upload of %d bytes with a rival = %v, want ErrExists and the rival's blob", length, err)
		}
	}
}

// meanwhile is a content that does something before it is read.
type meanwhile struct {
	do   func()
	then io.Reader
}

func (m *meanwhile) Read(p []byte) (int, error) {
	if m.do != nil {
		m.do()
		m.do = nil
	}
	return m.then.Read(p)
}

// TestUploadEndsWithItsContext: nothing is stored then.
func TestUploadEndsWithItsContext(t *testing.T) {
	b := setup(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	content := &meanwhile{do: func() { cancel(stop) }, then: bytes.NewReader(make([]byte, 3*upload.BlockSize))}
	_, err := b.Upload(ctx, job.Input{Container: "scenes", Blob: "a"}, content, UploadOptions{Create: true})
	if !errors.Is(err, stop) {
		t.Errorf("Upload = %v, want the cause of its context", err)
	}
	if n := b.server.Counts()[storage.OpPutBlockList]; n != 0 {
		t.Errorf("block lists = %d, want none", n)
	}
}

// version returns the ETag of an input, nil if it names none.
func version(in job.Input) *azcore.ETag {
	if in.ETag == "" {
		return nil
	}
	return new(azcore.ETag(in.ETag))
}
