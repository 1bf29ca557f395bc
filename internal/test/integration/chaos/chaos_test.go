//go:build integration

package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestMain lets the test binary be the worker of a run.
func TestMain(m *testing.M) {
	chaos.WorkerMain()
	m.Run()
}

// TestKills kills 50 workers that run jobs.
func TestKills(t *testing.T) {
	c := short()
	c.Kills = 50
	run(t, c)
}

// TestKillsOnAzurite kills 200.
func TestKillsOnAzurite(t *testing.T) {
	c := short()
	c.Kills, c.Workers, c.PerSecond = 200, 12, 6
	c.ConnectionString = azurite.Start(t)
	run(t, c)
}

// short is a run without duplicates, which are checked again only after half a minute; the long runs
// have them.
func short() chaos.Config {
	c := chaos.DefaultConfig()
	c.DuplicateEvery, c.JobTime, c.Visibility = 0, time.Second, 3*time.Second
	return c
}

// run logs the table in any case.
func run(t *testing.T, c chaos.Config) chaos.Deaths {
	t.Helper()
	var out strings.Builder
	deaths, err := chaos.Run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Error(err)
	}
	return deaths
}
