package up

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestProgramThatIgnoresSIGTERM: a program that will not stop, and the child that it left
// in its group, are gone within the handlers' half of the budget: the job is not
// abandoned, and its saved state is handed over. The time is logged; it is measured in
// real time and depends on the machine.
func TestProgramThatIgnoresSIGTERM(t *testing.T) {
	proof.Only(t, "it waits for the end of a drain in real time")
	folder := t.TempDir()
	pids := filepath.Join(folder, "pids")
	script := `trap '' TERM
sleep 600 &
echo $$ $! >"$PIDS"
echo half >"$TMPDIR/new" && mv "$TMPDIR/new" "$SPOTWORKER_CHECKPOINT"
while :; do sleep 1; done`
	kinds := filepath.Join(folder, "kinds.json")
	text := `{"kinds": {"stubborn": {"command": ["sh", "-c", ` + jsonText(t, script) + `], "environment": {"PIDS": ` + jsonText(t, pids) +
		`}}}}`
	if err := os.WriteFile(kinds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startUp(t, upOnAnyPorts())
	programs, _ := labtest.Programs(t)
	put := strings.Replace(r.paste(t, "producer", "", programs.Producer), "--wait put "+guide{}.example(), "put --kind stubborn --id a", 1)
	if out, err := shell(t, put).CombinedOutput(); err != nil {
		t.Fatalf("producer: %v: %s", err, out)
	}
	log := r.worker(t, "spot_1", "--kinds-file", kinds, "--checkpoint-interval", "200ms", "--log-level", "debug")
	log.Until(t, `"msg":"checkpoint saved"`)
	if _, err := Evict(t.Context(), r.port, "spot_1"); err != nil {
		t.Fatal(err)
	}
	took, err := time.ParseDuration(log.Until(t, `"msg":"drained".*"since_notice":"([^"]+)"`))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("notice to all released: %s", took)
	if said := log.String(); !strings.Contains(said, `"state_bytes":5,`) || strings.Contains(said, "did not return in time") {
		t.Errorf("the job was not released with what was saved, or was abandoned:\n%s", said)
	}
	started, err := os.ReadFile(pids)
	if err != nil || len(strings.Fields(string(started))) != 2 {
		t.Fatalf("the program's processes are %q, %v, want two", started, err)
	}
	wantGone(t, strings.Fields(string(started))...)
}

// wantGone checks that processes have ended.
func wantGone(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		if status, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(status), ") Z ") {
			t.Errorf("process %s is still there: %s", pid, status)
		}
	}
}

// jsonText is a text as JSON has it.
func jsonText(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}
