package hostile

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// part is a part of an answer: a header, or an element of its body.
type part struct{ operation, header, element string }

// partial is a transport that leaves a part out of the answers of another one.
type partial struct {
	policy.Transporter

	mu    sync.Mutex
	drop  part          // nothing if it is empty
	times int           // how many answers are without it; negative for all
	seen  map[part]bool // that answers have
}

var element = regexp.MustCompile(`<([A-Za-z-]+)>`)

// Do implements policy.Transporter.
func (p *partial) Do(r *http.Request) (*http.Response, error) {
	resp, err := p.Transporter.Do(r)
	if err != nil {
		return resp, err
	}
	comp := r.URL.Query().Get("comp")
	operation := fmt.Sprint(r.URL.Host, " ", r.Method, " ", comp, " ", path.Base(r.URL.Path) == "messages", " ", resp.StatusCode/100)
	p.mu.Lock()
	defer p.mu.Unlock()
	for header := range resp.Header {
		p.seen[part{operation: operation, header: header}] = true
	}
	if resp.Header.Get("Content-Type") == "application/xml" {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		for _, found := range element.FindAllSubmatch(body, -1) {
			p.seen[part{operation: operation, element: string(found[1])}] = true
		}
		if p.drop.operation == operation && p.drop.element != "" && p.times != 0 {
			p.times--
			body = regexp.MustCompile(`(?s)<`+p.drop.element+`>.*?</`+p.drop.element+`>`).ReplaceAll(body, nil)
			resp.ContentLength = int64(len(body))
			resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if p.drop.operation == operation && p.drop.header != "" && p.times != 0 {
		p.times--
		resp.Header.Del(p.drop.header)
		if p.drop.header == "Content-Length" {
			resp.ContentLength = -1
		}
	}
	return resp, nil
}

// partialRun lets a worker do jobs while a part is missing in answers, and operators and
// clients read what there is. It returns the parts that answers have.
func partialRun(t *testing.T, drop part, times int) (seen map[part]bool) {
	t.Helper()
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		transport := &partial{Transporter: b.Server.Transport(), drop: drop, times: times, seen: map[part]bool{}}
		work := &rig.Steps{N: 20, Each: time.Second}
		b.Put("long", "steps", "")
		b.Put("short", "echo", `"x"`)
		b.PutLarge("large", "echo", bytes.Repeat([]byte("1"), 70<<10))
		p := b.StartWithLink("vm_0", job.Kinds{"steps": work, "echo": rig.Echo}, func(l *rig.Link) { l.Next = transport })
		s := b.Connect(transport)
		read := func() {
			for _, err := range s.Records.List(t.Context(), "") {
				_ = err // only whether it panics or hangs
			}
			_, _ = s.Workers.List(t.Context())
			_, _, _ = s.Workers.Read(t.Context(), "vm_0")
			_, _ = s.Records.Read(t.Context(), "long")
			_, _ = s.Records.Result(t.Context(), "short")
			_, _ = s.Jobs.Depth(t.Context())
			_, _ = s.Queue.Peek(t.Context(), 32)
			_, _ = s.Queue.FrontWaited(t.Context())
			_, _, _ = s.Control.Read(t.Context(), "")
		}
		for range 6 {
			time.Sleep(10 * time.Second)
			read()
		}
		transport.mu.Lock()
		transport.times = 0
		transport.mu.Unlock()
		for _, id := range []string{"long", "short", "large"} {
			b.WaitFor(id+" done", 15*time.Minute, func() bool { return b.Record(id).Status == checkpoint.Done })
		}
		read()
		b.WaitFor("no message left", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if n := len(b.PoisonMessages()); n > 0 {
			t.Errorf("jobs dead-lettered = %d, want 0: %v", n, b.PoisonMessages()[0].Reason)
		}
		for _, id := range []string{"long", "short", "large"} {
			if r := b.Record(id); r.Failures > 0 {
				t.Errorf("failures of %s = %d, want 0", id, r.Failures)
			}
		}
		p.Stop()
		seen = transport.seen
	})
	return seen
}

// FuzzAnswers: if any part of storage's answers is missing, once or for a minute, nothing
// panics or hangs, no job is lost or counted as failed, and all are done once the answers
// are whole.
func FuzzAnswers(f *testing.F) {
	var parts []part
	step := proof.Times(10, 1)
	first := int(proof.Seed(f) % uint64(step))
	for i := first; i < 200; i += step {
		f.Add(uint16(i), int8(-1))
		f.Add(uint16(i), int8(1))
	}
	var once sync.Once
	f.Fuzz(func(t *testing.T, n uint16, times int8) {
		once.Do(func() {
			parts = slices.SortedFunc(maps.Keys(partialRun(t, part{}, 0)), func(a, b part) int {
				return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
			})
			t.Logf("%d parts", len(parts))
		})
		if int(n) >= len(parts) {
			return
		}
		t.Logf("without %v", parts[n])
		partialRun(t, parts[n], int(times))
	})
}
