//go:build integration

package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// maxMemory of one search, in MiB. A search that needs more fails.
const maxMemory = 6144

// search is one run of spin: a model, its bounds, and the expected result.
type search struct {
	name string
	// defines are the bounds, and the broken rule.
	defines []string
	// liveness looks for a run in which the job never ends, among runs in which every
	// process that can continue does. Otherwise spin looks for a write or a deletion that
	// breaks a promise.
	liveness bool
	// quick searches are those of every change; make nightly-model runs all.
	quick bool
	// large optimizes spin's program: gcc takes seconds, which only some searches win back.
	large bool
	// finds is the required finding of the search, a pattern in spin's words. Empty: it
	// must find nothing, and must have seen everything.
	finds string
}

// TestProtocolHolds explores every state within the bounds, with some of the bounds in a quick run.
func TestProtocolHolds(t *testing.T) {
	for _, s := range []search{
		{name: "safety, one fault", large: true, defines: []string{"FAULTS=1", "STOPS=0"}},
		{name: "safety, one stop", quick: true, defines: []string{"FAULTS=0", "STOPS=1"}},
		{name: "safety, three workers", defines: []string{"WORKERS=3", "FAULTS=0", "STOPS=0"}},
		{name: "safety, two faults, no duplicate", defines: []string{"FAULTS=2", "STOPS=0", "SINGLE"}},
		{name: "safety, a fault, a stop and a duplicate", quick: true, defines: []string{"FAULTS=1", "STOPS=1", "NO_MOVE", "NO_OPERATOR"}},
		{name: "safety, replay and purge", defines: []string{"FAULTS=0", "STOPS=0", "NO_MOVE", "NO_OPERATOR", "POISON_DESK"}},
		{name: "safety, replay and purge, one fault, no duplicate", defines: []string{"FAULTS=1", "STOPS=1", "SINGLE", "NO_MOVE", "NO_OPERATOR",
			"POISON_DESK"}},
		{name: "safety, the owner puts the job again", quick: true, defines: []string{"FAULTS=0", "STOPS=1", "NO_MOVE", "NO_OPERATOR",
			"PUT_AGAIN"}},
		{name: "safety, the owner puts the job again, one fault", defines: []string{"FAULTS=1", "STOPS=0", "NO_MOVE", "NO_OPERATOR",
			"PUT_AGAIN"}},
		{name: "safety, the owner puts the job again, a cancel, one stop, no duplicate", defines: []string{"FAULTS=0", "STOPS=1", "SINGLE",
			"NO_MOVE", "PUT_AGAIN"}},
		{name: "safety, messages are lost and requeued, one fault and one stop", defines: []string{"FAULTS=1", "STOPS=1", "NO_MOVE",
			"NO_OPERATOR", "REQUEUE"}},
		{name: "safety, a cancel", quick: true, defines: []string{"FAULTS=0", "STOPS=0", "NO_MOVE", "CANCEL"}},
		{name: "safety, a cancel, one fault and one stop, no duplicate", defines: []string{"FAULTS=1", "STOPS=1", "SINGLE", "NO_MOVE", "CANCEL"}},
		{name: "safety, a cancel while messages are lost and requeued, one fault, no duplicate",
			defines: []string{"FAULTS=1", "STOPS=0", "SINGLE", "NO_MOVE", "CANCEL", "REQUEUE"}},
		{name: "safety, a search", defines: []string{"FAULTS=0", "STOPS=0", "SEARCH=1"}},
		{name: "safety, two searches, one fault and one stop, no duplicate", defines: []string{"FAULTS=1", "STOPS=1", "SINGLE", "NO_OPERATOR",
			"SEARCH=2"}},
		{name: "safety, a search, one fault and a duplicate", defines: []string{"FAULTS=1", "STOPS=0", "NO_OPERATOR", "SEARCH=1"}},
		{name: "safety, a search, a cancel and one fault, no duplicate", defines: []string{"FAULTS=1", "STOPS=0", "SINGLE", "CANCEL",
			"SEARCH=1"}},
		{name: "safety, two moves, one fault and two stops, no duplicate", quick: true, defines: []string{"FAULTS=1", "STOPS=2", "SINGLE",
			"NO_OPERATOR", "TWO_MOVES"}},
		{name: "safety, two moves, two stops and a duplicate", defines: []string{"FAULTS=0", "STOPS=2", "NO_OPERATOR", "TWO_MOVES"}},
		{name: "liveness", quick: true, liveness: true, defines: []string{"FAULTS=0", "STOPS=0"}},
		{name: "liveness, two moves and two stops, no duplicate", liveness: true, defines: []string{"FAULTS=0", "STOPS=2", "SINGLE",
			"NO_OPERATOR", "TWO_MOVES"}},
		{name: "liveness, one fault and one stop, no duplicate", liveness: true, large: true, defines: []string{"FAULTS=1", "STOPS=1", "SINGLE"}},
		{name: "liveness, replay and purge, no duplicate", liveness: true, defines: []string{"FAULTS=0", "STOPS=0", "SINGLE", "NO_MOVE",
			"NO_OPERATOR", "POISON_DESK"}},
		{name: "liveness, the owner puts the job again, one fault, no duplicate", liveness: true, defines: []string{"FAULTS=1", "STOPS=0",
			"SINGLE", "NO_MOVE", "NO_OPERATOR", "PUT_AGAIN"}},
		{name: "liveness, a cancel, one fault, no duplicate", liveness: true, defines: []string{"FAULTS=1", "STOPS=0", "SINGLE", "NO_MOVE",
			"CANCEL"}},
		{name: "liveness, messages are lost and requeued, two faults, no duplicate", liveness: true,
			defines: []string{"FAULTS=2", "STOPS=0", "SINGLE", "NO_MOVE", "NO_OPERATOR", "REQUEUE"}},
		{name: "liveness, two searches and one fault, no duplicate", liveness: true, defines: []string{"FAULTS=1", "STOPS=0", "SINGLE",
			"NO_OPERATOR", "SEARCH=2"}},
	} {
		if s.quick || proof.Full() {
			t.Run(s.name, s.run)
		}
	}
}

// TestBrokenProtocolsAreRefuted breaks one rule at a time: a model that found
// nothing then would prove nothing.
func TestBrokenProtocolsAreRefuted(t *testing.T) {
	const overOutcome = `assertion violated +\(? *!\(`
	for _, s := range []search{
		{name: "writes without a condition", quick: true, finds: "assertion violated", defines: []string{"WITHOUT_CONDITION", "FAULTS=1",
			"STOPS=0"}},
		{name: "a redelivery claims whatever message owns the record", finds: "acceptance cycle", liveness: true,
			defines: []string{"ANY_OWNER", "FAULTS=0", "STOPS=0"}},
		{name: "an unknown outcome is a success by the token alone", quick: true, finds: "assertion violated",
			defines: []string{"TOKEN_ALONE", "FAULTS=1",
				"STOPS=0"}},
		{name: "a purge deletes the poison message without a look at the record", finds: "assertion violated",
			defines: []string{"PURGE_BLIND", "FAULTS=0", "STOPS=0", "SINGLE", "NO_MOVE", "NO_OPERATOR", "POISON_DESK"}},
		{name: "a message from before the job was put again may claim it", quick: true, finds: `assertion violated .*anew`,
			defines: []string{"OLD_COUNTS", "FAULTS=0", "STOPS=0", "NO_MOVE", "NO_OPERATOR", "PUT_AGAIN"}},
		{name: "a message that is gone is not replaced, nor requeued", finds: "acceptance cycle", liveness: true,
			defines: []string{"NOT_REPLACED", "FAULTS=1", "STOPS=1", "SINGLE", "NO_MOVE", "NO_OPERATOR", "REQUEUE"}},
		{name: "a worker believes the control document, which is written before the record", finds: `assertion violated .*posted`,
			defines: []string{"CANCEL_BLIND", "FAULTS=1", "STOPS=0", "SINGLE", "NO_MOVE", "CANCEL"}},
		{name: "a first delivery starts although its message is older than the newest cancel", finds: `assertion violated .*knew`,
			defines: []string{"NOT_CHECKED_BEFORE", "FAULTS=0", "STOPS=0", "SINGLE", "NO_MOVE", "CANCEL"}},
		{name: "a search deletes the message although it put no other", finds: "assertion violated",
			defines: []string{"SEARCH_WITHOUT_PUT", "FAULTS=0", "STOPS=0", "SINGLE", "SEARCH=1"}},
		{name: "an operator's write keeps the worker's token", finds: overOutcome, defines: []string{"OPERATOR_KEEPS_TOKEN", "FAULTS=1",
			"STOPS=0"}},
	} {
		if s.quick || proof.Full() {
			t.Run(s.name, s.run)
		}
	}
}

var (
	stored = regexp.MustCompile(`(?m)^\s*(\d+(?:\.\d+)?(?:e\+\d+)?) states, stored`)
	errs   = regexp.MustCompile(`errors: (\d+)`)
)

func (s search) run(t *testing.T) {
	said := s.search(t)
	if s.finds != "" {
		if !regexp.MustCompile(s.finds).MatchString(said) {
			t.Errorf("spin does not find %q in the broken protocol; it says:\n%s", s.finds, said)
		}
		return
	}
	found := errs.FindStringSubmatch(said)
	if found == nil || found[1] != "0" || strings.Contains(said, "Search not completed") || strings.Contains(said, "search depth too small") {
		t.Fatalf("spin did not see everything, or found something:\n%s", said)
	}
	t.Logf("%s states, nothing found", stored.FindStringSubmatch(said)[1])
}

// search makes spin's program for the model and runs it.
func (s search) search(t *testing.T) string {
	t.Helper()
	spin, cc := need.Command(t, "spin"), need.Command(t, "gcc")
	model, err := filepath.Abs("record.pml")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	arguments := []string{"-a"}
	for _, d := range s.defines {
		arguments = append(arguments, "-D"+d)
	}
	command(t, folder, spin, append(arguments, model)...)

	mode, flags := "-DSAFETY", []string{"-noclaim"}
	if s.liveness {
		mode, flags = "-DNFAIR=4", []string{"-a", "-f"}
	}
	pan, optimize := filepath.Join(folder, "pan"), "-O0"
	if s.large {
		optimize = "-O2"
	}
	command(t, folder, cc, "-w", optimize, "-DVECTORSZ=2048", fmt.Sprintf("-DMEMLIM=%d", maxMemory), mode, "-o", pan, "pan.c")
	return command(t, folder, pan, append(flags, "-m1000000", "-w24")...)
}

func command(t *testing.T, folder, name string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	cmd.Dir, cmd.Env = folder, os.Environ()
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", filepath.Base(name), err, said)
	}
	return string(said)
}
