//go:build integration

package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/lab/realtime"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestMain lets the test binary be the worker of a run.
func TestMain(m *testing.M) {
	chaos.WorkerMain()
	realtime.WorkerMain()
	m.Run()
}

// TestKills kills 50 workers that run jobs.
func TestKills(t *testing.T) {
	c := chaos.DefaultConfig()
	c.Kills = 50
	run(t, c)
}

// TestKillsOnAzurite kills 200.
func TestKillsOnAzurite(t *testing.T) {
	c := chaos.DefaultConfig()
	c.Kills, c.Workers, c.PerSecond = 200, 12, 6
	c.ConnectionString = azurite.Start(t)
	run(t, c)
}

// run logs the table in any case.
func run(t *testing.T, c chaos.Config) {
	t.Helper()
	// A duplicate is checked again only after half a minute; the long runs have
	// them.
	c.DuplicateEvery, c.JobTime, c.Visibility = 0, time.Second, 3*time.Second
	var out strings.Builder
	err := chaos.Run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Error(err)
	}
}
