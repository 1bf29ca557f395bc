package workercmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/job"
)

// TestLimitProcesses: each kind gets its share or the number it asks for, never more than
// leaves the worker its own processes. The log warns about limits that cannot be kept.
func TestLimitProcesses(t *testing.T) {
	all := tree.Tasks{Job: 500, Jobs: 2000}
	for name, row := range map[string]struct {
		tasks              tree.Tasks
		asked, concurrency int
		unenforced         bool
		want               int
		warning            string
	}{
		"the share":              {tasks: all, want: 500},
		"less":                   {tasks: all, asked: 10, want: 10},
		"more, one at once":      {tasks: all, asked: 1500, concurrency: 1, want: 1500},
		"more, several at once":  {tasks: all, asked: 1500, want: 1500, warning: "one can take those of others"},
		"more than there is":     {tasks: all, asked: 9000, concurrency: 1, want: 2000, warning: "one can take those of others"},
		"a small share":          {tasks: tree.Tasks{Job: 20, Jobs: 80}, want: 20, warning: "few processes"},
		"no limit here":          {asked: 50, want: 50},
		"nothing known":          {want: 0},
		"nothing enforces it":    {tasks: all, asked: 50, unenforced: true, want: 50, warning: "not enforced"},
		"no kind asks for it":    {tasks: all, unenforced: true, want: 500},
		"small and not enforced": {tasks: tree.Tasks{Job: 20, Jobs: 80}, unenforced: true, want: 20},
	} {
		var log bytes.Buffer
		kinds := []program.Kind{{Name: "k", Processes: row.asked, Limits: job.Limits{Concurrency: row.concurrency}}}
		limitProcesses(kinds, row.tasks, 4, !row.unenforced, slog.New(slog.NewTextHandler(&log, nil)))
		if kinds[0].Processes != row.want {
			t.Errorf("%s: %d, want %d", name, kinds[0].Processes, row.want)
		}
		if said := log.String(); !strings.Contains(said, row.warning) || row.warning == "" && said != "" {
			t.Errorf("%s: log has %q, want %q", name, said, row.warning)
		}
	}
}
