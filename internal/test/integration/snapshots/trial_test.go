//go:build integration && linux

package snapshots

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestTrial is lab try --snapshot: it evicts an unchanged program, with notice and without, and
// compares its files; and it names what CRIU refuses.
func TestTrial(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	slow := []string{"late-save", "not-always-frozen", "not-evicted"} // a machine that is busy
	for name, row := range map[string]struct {
		program string
		want    []string // one of these problems, or none
	}{
		"works":   {`i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.05; done >out`, slow},
		"refused": {`ln -s /usr/bin link; sleep 4; echo end >out`, append(slow, "not-frozen")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := trial.DefaultConfig()
			c.Command, c.Snapshot, c.Evictions, c.Timeout = []string{"sh", "-c", row.program}, true, 2, 15*time.Minute
			var out labtest.Output
			report, err := trial.Run(t.Context(), c, &out)
			problems := []string{}
			for _, f := range report.Findings {
				if f.Severity != trial.Remark {
					problems = append(problems, f.Name)
				}
			}
			unexpected := slices.DeleteFunc(slices.Clone(problems), func(name string) bool { return slices.Contains(row.want, name) })
			if !report.Snapshot || len(unexpected) > 0 || name == "refused" && len(problems) == 0 {
				t.Fatalf("Run = %v, with the findings %q, want none but %q\n%s", err, problems, row.want, out.String())
			}
			story := strings.Join(strings.Fields(out.String()), " ")
			if name == "works" && len(problems) == 0 && (!report.Interruptible || !strings.Contains(story, "It was frozen in")) {
				t.Errorf("Run = %v, want a program that was frozen and is interruptible\n%s", err, out.String())
			}
			if slices.Contains(problems, "not-frozen") && !strings.Contains(story, filepath.Join("work", "link")) {
				t.Errorf("the report does not name the link:\n%s", out.String())
			}
		})
	}
}
