//go:build unix

package program

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/job"
)

// TestGPUs: a job gets as many GPUs as its kind says, or its message where that names the command; its
// program sees them alone, and other programs none, unless their kind says otherwise.
func TestGPUs(t *testing.T) {
	b := setup(t)
	kinds, err := ReadKinds(kindsFile(t, `{"gpus": [2, 3], "kinds": {
		"two": {"command": ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES >$SPOTWORKER_RESULT"], "gpus": 2},
		"none": {"command": ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES >$SPOTWORKER_RESULT"]},
		"own": {"command": ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES >$SPOTWORKER_RESULT"], "environment": {"CUDA_VISIBLE_DEVICES": "7"}},
		"message": {"command": "message"}, "usually": {"command": "message", "gpus": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	pool := gpu.Open(gpu.Config{List: kinds[0].ListedGPUs, Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer pool.Close()
	if !TakeGPUs(kinds) || TakeGPUs(kinds[1:3]) {
		t.Error("the kinds that take GPUs are not known")
	}
	gpus := ShareGPUs(kinds, pool)
	c := sh("echo $CUDA_VISIBLE_DEVICES")
	asks := func(n int) command.Command { c.GPUs = &n; return c }
	for _, row := range []struct {
		kind    int
		payload string
		want    string // the result
		number  int    // that is reserved
	}{
		{0, "", "2,3 2,3", 2}, {1, "", "-1", 0}, {2, "", "7", 0},
		{3, string(payloadOf(t, c)), "-1", 0}, {3, string(payloadOf(t, asks(1))), "2", 1}, {4, string(payloadOf(t, asks(2))), "2,3", 2},
		{4, string(payloadOf(t, sh("echo $CUDA_VISIBLE_DEVICES"))), "2", 1}, {4, string(payloadOf(t, asks(0))), "-1", 0},
	} {
		k := kinds[row.kind]
		release, changed, err := gpus.Reserve(k.Name, "job-1", []byte(row.payload))
		if changed != nil || err != nil || (release != nil) != (row.number > 0) {
			t.Fatalf("kind %s: Reserve = %v, %v", k.Name, changed, err)
		}
		j := job.New(job.Spec{ID: "job-1", Kind: k.Name, Payload: []byte(row.payload), Attempt: 1}, nil)
		job.ControlOf(j).OnOutputs(&stored{})
		w := b.beginJob(k, j)
		w.wait(t)
		w.Close()
		if got := strings.TrimSpace(string(w.result)); got != row.want || w.err != nil {
			t.Errorf("kind %s, %s: result = %q, %v, want %q", k.Name, row.payload, got, w.err, row.want)
		}
		devices, leave := pool.Join("job-1")
		leave()
		if release != nil {
			release()
		}
		if diff := cmp.Diff(row.number, len(devices)); diff != "" {
			t.Errorf("kind %s, %s: devices %v, want %d", k.Name, row.payload, devices, row.number)
		}
	}
	if _, _, err := gpus.Reserve("message", "a", payloadOf(t, asks(3))); err == nil || !strings.Contains(err.Error(), "takes 3 GPUs") {
		t.Errorf("Reserve of more than there are = %v", err)
	}
	if n := gpus.Wanted("message", payloadOf(t, asks(3))); n != 3 {
		t.Errorf("Wanted = %d, want 3", n)
	}
	for kind, payload := range map[string]string{"built-in": `{"gpus": 1}`, "message": `{"gpus": 1}`} {
		if release, changed, err := gpus.Reserve(kind, "a", []byte(payload)); release != nil || changed != nil || err != nil {
			t.Errorf("kind %s: Reserve = %v, want nothing reserved", kind, err)
		}
	}
	hiding := gpu.Open(gpu.Config{Hide: true, Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer hiding.Close()
	for i, hidden := range []bool{true, true, false, true} { // the kind "own" names its GPUs itself
		k := kinds[i]
		if k.Pool = hiding; (k.visible(nil) != nil) != hidden {
			t.Errorf("kind %s: GPUs of others are hidden: %t, want %t", k.Name, !hidden, hidden)
		}
	}
	w := b.begin(kinds[0], "", nil)
	if w.wait(t); !job.IsUnavailable(w.err) {
		t.Errorf("a job without its GPUs: %v, want it unavailable", w.err)
	}
	w.Close()
	frozen := Kind{Name: "frozen", FromMessage: true, Snapshot: true}
	c = asks(1)
	if err := frozen.admits(&c); err == nil || !strings.Contains(err.Error(), "is frozen (snapshot)") {
		t.Errorf("GPUs for a frozen program: %v", err)
	}
}
