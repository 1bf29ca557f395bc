package workercmd

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/monitor"
	"github.com/spotworker/spotworker/internal/worker"
)

// FuzzFlags gives the worker any command line, an argument a line: it is refused as wrong
// configuration, on which a unit does not restart, or
// makes a worker whose numbers are in their ranges. Nothing is sent.
func FuzzFlags(f *testing.F) {
	for _, seed := range []string{
		"", "--help", "--version", "--concurrency=4", "--concurrency=9223372036854775807", "--concurrency=-1", "--drain-budget=1ns",
		"--drain-budget=-1h",
		"--checkpoint-interval=auto", "--checkpoint-interval=0s",
		"--take-from=on-demand,spot", "--take-from=spot,spot", "--take-from=", "--move-after=-3",
		"--prefix=-", "--queue=UPPER",
		"--default-kind=../x", "--instance=..", "--metadata-endpoint=none", "--metadata-endpoint=ftp://x",
		"--metadata-endpoint=http://127.0.0.1:1/\x00", "--acknowledge=all",
		"--data-container=data\n--input-container=out", "--", "--account", "-x", "worker", "--log-level=loud",
	} {
		f.Add(seed)
	}
	f.Setenv("AZURE_STORAGE_CONNECTION_STRING",
		"AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:1/a")
	f.Fuzz(func(t *testing.T, text string) {
		for _, touching := range []string{"runtime", "kinds", "scratch", "listen"} {
			if strings.Contains(text, touching) {
				return // these make folders or take ports
			}
		}
		var fl flags
		var out bytes.Buffer
		program := cli.Program{Name: "worker", Version: "1", Vars: map[string]string{"metadata_endpoint": preempt.DefaultEndpoint,
			"listen_port": strconv.Itoa(monitor.BasePort)}}
		done, err := program.Parse(&fl, strings.Split(text, "\n"), &out)
		if done {
			if out.Len() == 0 {
				t.Fatalf("%q: help or version said nothing", text)
			}
			return
		}
		if err == nil {
			var closeKinds func()
			if _, closeKinds, err = fl.worker(testKinds, slog.New(slog.DiscardHandler), fl.telemetry(slog.New(slog.DiscardHandler), systemdManager),
				newIdentity("host", "0", "")); err == nil {
				closeKinds()
				if n := fl.slots(); n < 1 || n > worker.MaxConcurrency {
					t.Fatalf("%q: %d jobs at once", text, n)
				}
				return
			}
		}
		if wrong, ok := errors.AsType[*cli.ConfigError](err); !ok || strings.TrimSpace(wrong.Error()) == "" {
			t.Fatalf("%q: error %#v is not one of configuration", text, err)
		}
	})
}
