package blobs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// inContainer runs a test with a container of the emulator in virtual time.
func inContainer(t *testing.T, test func(t *testing.T, server *storage.Server, c Container)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		client, err := container.NewClientFromConnectionString(server.ConnectionString(), "data", &container.ClientOptions{
			ClientOptions: azcore.ClientOptions{Transport: server.Transport(), Retry: policy.RetryOptions{MaxRetries: -1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		test(t, server, In(client))
	})
}

// TestPutAndGet: a blob is read as it was written, and only as long as a condition holds.
func TestPutAndGet(t *testing.T) {
	inContainer(t, func(t *testing.T, _ *storage.Server, c Container) {
		ctx := t.Context()
		first, err := c.Put(ctx, "a/b", []byte("one"), Options{Type: "text/plain", Metadata: map[string]*string{"v": new("1")}, If: Same("")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b, data, err := c.Get(ctx, "a/b", 3)
		if err != nil || string(data) != "one" || b.Size != 3 || b.ETag != first || b.Age() != time.Minute || len(b.Metadata) != 1 {
			t.Errorf("Get = %+v, %q, %v", b, data, err)
		}
		if found, err := c.Find(ctx, "a/b"); err != nil || found.ETag != first || found.Size != 3 || found.Age() != time.Minute {
			t.Errorf("Find = %+v, %v", found, err)
		}
		if b, _, err := c.Get(ctx, "a/b", 2); !errors.Is(err, ErrTooLarge) || b.ETag != first {
			t.Errorf("Get of two bytes = %+v, %v, want ErrTooLarge and the blob", b, err)
		}
		if b, data, err := c.GetIf(ctx, "a/b", 3, Changed(first)); err != nil || len(data) != 0 {
			t.Errorf("Get if changed = %+v, %q, %v, want no content", b, data, err)
		}
		if _, err := c.Put(ctx, "a/b", nil, Options{If: Same("")}); !IsConflict(err) {
			t.Errorf("Put of an existing blob = %v, want a conflict", err)
		}
		if err := c.Create(ctx, "a/b", nil, ""); err != nil {
			t.Errorf("Create of an existing blob = %v", err)
		}
		second, err := c.Put(ctx, "a/b", []byte("two"), Options{If: Same(first)})
		if err != nil || second == first {
			t.Errorf("Put under its ETag = %q, %v", second, err)
		}
		if _, err := c.Open(ctx, "a/b", first, 0); !IsConflict(err) {
			t.Errorf("Open of an old version = %v, want a conflict", err)
		}
		part := make([]byte, 2)
		if err := ReadRange(ctx, c.client.NewBlobClient("a/b"), second, part, 1); err != nil || string(part) != "wo" {
			t.Errorf("ReadRange = %q, %v", part, err)
		}
		if length := (*LengthError)(nil); !errors.As(ReadRange(ctx, c.client.NewBlobClient("a/b"), second, part, 2), &length) {
			t.Error("ReadRange over the end is no LengthError")
		}
	})
}

// TestDelete: a blob is deleted once, and not if it was written since.
func TestDelete(t *testing.T) {
	inContainer(t, func(t *testing.T, _ *storage.Server, c Container) {
		ctx := t.Context()
		etag, err := c.Put(ctx, "a", nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			etag azcore.ETag
			want bool
		}{{`"0x8DEAD"`, false}, {azcore.ETag(strings.Trim(string(etag), `"`)), true}, {"", false}} {
			if deleted, err := c.Delete(ctx, "a", row.etag); err != nil || deleted != row.want {
				t.Errorf("Delete of %q = %t, %v, want %t", row.etag, deleted, err, row.want)
			}
		}
		if _, _, err := c.Get(ctx, "a", 1); !IsMissing(err) {
			t.Errorf("Get of a missing blob = %v", err)
		}
	})
}

// TestTimeLimits: each call ends within its limit, and Within replaces the limits.
func TestTimeLimits(t *testing.T) {
	inContainer(t, func(t *testing.T, server *storage.Server, c Container) {
		server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
		for limit, c := range map[time.Duration]Container{0: c, 5 * time.Second: c.Within(5 * time.Second)} {
			for name, row := range map[string]struct {
				usual time.Duration
				call  func(ctx context.Context) error
			}{
				"Check":  {callTimeout, c.Check},
				"Find":   {callTimeout, func(ctx context.Context) error { _, err := c.Find(ctx, "a"); return err }},
				"Delete": {callTimeout, func(ctx context.Context) error { _, err := c.Delete(ctx, "a", ""); return err }},
				"Get":    {transferTimeout, func(ctx context.Context) error { _, _, err := c.Get(ctx, "a", 1); return err }},
				"Create": {transferTimeout, func(ctx context.Context) error { return c.Create(ctx, "a", nil, "") }},
			} {
				begun, want := time.Now(), row.usual
				if limit > 0 {
					want = limit
				}
				if err := row.call(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != want {
					t.Errorf("%s = %v after %s, want the end of %s", name, err, time.Since(begun), want)
				}
			}
		}
	})
}

// TestListedForms: folders and archived blobs are told from others.
func TestListedForms(t *testing.T) {
	const archived, folder = "<AccessTier>Archive</AccessTier>", "<ResourceType>directory</ResourceType>"
	for extra, want := range map[string]string{"": "", archived: "archived", folder: "folder", "<ResourceType>file</ResourceType>": ""} {
		listed := strings.Replace(item("a"), "</Properties>", extra+"</Properties>", 1)
		c := In(service(func(context.Context, string) (string, error) { return xmlPage("", listed), nil }).container(t))
		for b, err := range c.List(t.Context(), "", false) {
			got := map[bool]string{b.IsArchived: "archived"}[true] + map[bool]string{b.IsFolder: "folder"}[true]
			if err != nil || got != want {
				t.Errorf("with %q = %q, %v, want %q", extra, got, err, want)
			}
		}
	}
}
