package main

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds/scenario"
	"github.com/spotworker/spotworker/internal/lab/up"
)

func TestIMDSFlags(t *testing.T) {
	if got, want := parsed(t, "imds").IMDS, (imdsCommand{Scenario: "eviction", MetadataPort: up.DefaultMetadataPort}); got != want {
		t.Errorf("lab imds without flags = %+v, want %+v", got, want)
	}
	got := parsed(t, "imds", "--scenario=x.json", "--metadata-port=7").IMDS
	if want := (imdsCommand{Scenario: "x.json", MetadataPort: 7}); got != want {
		t.Errorf("lab imds with flags = %+v, want %+v", got, want)
	}
}

func TestIMDSListsAndShows(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"imds", "--list"}, &out); err != nil || !strings.Contains(out.String(), "short-notice") {
		t.Errorf("lab imds --list = %v and prints %q, want the scenarios", err, out.String())
	}
	out.Reset()
	want, _ := scenario.ReadyText("freeze")
	if err := run([]string{"imds", "--show", "--scenario=freeze"}, &out); err != nil || out.String() != string(want) {
		t.Errorf("lab imds --show = %v and prints %q, want the text of the scenario", err, out.String())
	}
}

func TestIMDSRefuses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := "--metadata-port=" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for want, args := range map[string][]string{
		"neither a file nor one":  {"imds", "--scenario=none"},
		"--metadata-port -1":      {"imds", "--metadata-port=-1"},
		"with --metadata-port":    {"imds", taken},
		"unexpected argument now": {"imds", "now"},
	} {
		var out bytes.Buffer
		if err := run(args, &out); cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), want) || out.Len() != 0 {
			t.Errorf("lab %s = %v with exit code %d, want %d and an error with %q", strings.Join(args, " "), err, cli.Code(err), cli.ExitConfig,
				want)
		}
	}
}
