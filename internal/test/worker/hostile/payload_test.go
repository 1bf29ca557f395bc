package hostile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

func hashOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// upload writes any blob, as any client with the data role can.
func upload(b *rig.Bed, container, name, data string, metadata map[string]*string) {
	b.T.Helper()
	client := b.Account(b.Server.Transport()).Container(container).NewBlockBlobClient(name)
	body := streaming.NopCloser(strings.NewReader(data))
	if _, err := client.Upload(b.T.Context(), body, &blockblob.UploadOptions{Metadata: metadata}); err != nil {
		b.T.Fatal(err)
	}
}

// TestBorrowedPayload: a message that refers to the payload of another job does not get
// it, and the other job still has it.
func TestBorrowedPayload(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const secret = "the victim's input"
		upload(b, b.Names.Payloads, jobid.Path("victim")+"/"+hashOf(secret), secret, nil)
		ref := func(sum string, size int) string {
			return fmt.Sprintf(`"payload_ref":{"sha256":"%s","size":%d}`, sum, size)
		}
		for id, payload := range map[string]string{
			"thief":       ref(hashOf(secret), len(secret)),
			"path":        ref("../victim/"+hashOf(secret), len(secret)),
			"container":   `"payload_ref":{"container":"` + b.Names.Records + `","blob":"x","sha256":"` + hashOf(secret) + `","size":18}`,
			"wrong-hash":  ref(strings.Repeat("0", 64), len(secret)),
			"upper-case":  ref(strings.ToUpper(hashOf(secret)), len(secret)),
			"no-size":     `"payload_ref":{"sha256":"` + hashOf(secret) + `"}`,
			"minus-one":   ref(hashOf(secret), -1),
			"other-kinds": ref(hashOf(secret), 64<<20+1),
		} {
			b.PutText(put64(`{"v":1,"id":"%s","kind":"echo",%s}`, id, payload))
		}
		p := b.Start("vm_0", job.Kinds{"echo": onlyFor("victim")})
		b.WaitFor("all poisoned", time.Minute, func() bool { return len(b.PoisonMessages()) == 8 && b.MessagesLeft() == 0 })
		if panicked := p.Log.Find("handler panicked"); len(panicked) > 0 {
			t.Errorf("handlers were called for %v, want none", panicked)
		}
		// The other job is enqueued only now. Its payload is still there.
		b.PutText(put64(`{"v":1,"id":"victim","kind":"echo",%s}`, ref(hashOf(secret), len(secret))))
		b.WaitDone("victim", time.Minute)
		if got, err := b.Records.Result(t.Context(), "victim"); err != nil || string(got) != secret {
			t.Errorf("Result = %q, %v, want the job's own payload", got, err)
		}
		checkNames(b)
	})
}

// TestReplacedPayload: a payload that was replaced by another of the same length, a
// longer or an empty one never reaches a handler.
func TestReplacedPayload(t *testing.T) {
	for name, replacement := range map[string]string{"same length": "tuptni", "longer": strings.Repeat("x", 9<<20), "empty": ""} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				upload(b, b.Names.Payloads, jobid.Path("a")+"/"+hashOf("input!"), replacement, nil)
				b.PutText(put64(`{"v":1,"id":"a","kind":"echo","payload_ref":{"sha256":"%s","size":6}}`, hashOf("input!")))
				b.Start("vm_0", job.Kinds{"echo": onlyFor("none")})
				b.WaitFor("poison", time.Minute, func() bool { return b.Record("a").Status == checkpoint.Poison && b.MessagesLeft() == 0 })
				if r := b.Record("a"); !strings.Contains(r.Reason, "size and hash") {
					t.Errorf("reason = %q, want one about size and hash", r.Reason)
				}
			})
		})
	}
}
