package workercmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLinesNameTheWorker: each line has the worker and its VM, also lines of loggers that
// were made before either was known.
func TestLinesNameTheWorker(t *testing.T) {
	for _, tt := range []struct {
		name, vmName string
		learn        func(*identity)
		want         string
	}{
		{"at the start", "", func(*identity) {}, `"worker":"host-1","vm":"host"`},
		{"with --vm-name", "vm-7", func(*identity) {}, `"worker":"host-1","vm":"vm-7"`},
		{"with an answer", "", func(id *identity) { id.setVM("vm_3"); id.setWorker("vm_3-1a2b3c4d-1") },
			`"worker":"vm_3-1a2b3c4d-1","vm":"vm_3"`},
	} {
		var out bytes.Buffer
		id := newIdentity("host", "1", tt.vmName)
		log := slog.New(identified{slog.NewJSONHandler(&out, nil), id}).With("job_id", "a")
		tt.learn(id)
		log.Info("job started", "generation", 1)
		if want := `"job_id":"a","generation":1,` + tt.want + "}"; !strings.HasSuffix(strings.TrimSpace(out.String()), want) {
			t.Errorf("%s: line = %s, want %s at its end", tt.name, out.String(), want)
		}
	}
}
