package workercmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/windows/winservice"
)

func TestServiceRefuses(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "broken.env")
	slow := filepath.Join(folder, "slow.env")
	for path, text := range map[string]string{broken: "SPOTWORKER_ACCOUNT\n", slow: "SPOTWORKER_DRAIN_BUDGET=soon\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"no command":      {nil, "expected one of"},
		"unknown command": {[]string{"restart"}, "restart"},
		"a flag of the worker": {
			[]string{"install", "--account-name", "x"}, "--account-name",
		},
		"a name with a blank": {[]string{"install", "--name", "my worker"}, "--name"},
		"no file":             {[]string{"install", "--environment-file", folder + "/none.env"}, "none.env"},
		"a line":              {[]string{"install", "--environment-file", broken}, "line 1 of"},
		"a time":              {[]string{"install", "--environment-file", slow}, "SPOTWORKER_DRAIN_BUDGET"},
	} {
		var out bytes.Buffer
		err := runSystem(Options{Arguments: append([]string{"service"}, row.args...)}, "worker service", serviceDescription, &serviceFlags{},
			&out)
		if err == nil || cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, exit code %d, want a configuration error about %q", name, err, cli.Code(err), row.want)
		}
	}
}

func TestDrainBudgetOfAService(t *testing.T) {
	settings := []winservice.Variable{{Name: "SPOTWORKER_DRAIN_BUDGET", Value: "1m"}, {Name: "SPOTWORKER_DRAIN_BUDGET", Value: "2m"}}
	if got, err := drainBudget(settings); got != 2*time.Minute || err != nil {
		t.Errorf("drainBudget = %s, %v, want that of the later file", got, err)
	}
	if got, err := drainBudget(nil); got != 10*time.Second || err != nil {
		t.Errorf("drainBudget of none = %s, %v, want the worker's default", got, err)
	}
}
