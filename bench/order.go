package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// inVirtualTime are tests that log times set by the order of calls alone: no processor,
// network or load has a part in them, so each run gives the same. CI holds their bounds.
func inVirtualTime() []struct{ folder, tests string } {
	return []struct{ folder, tests string }{
		{"./internal/test/worker/fleets", "^(TestCeilingBySlots|TestIdlePickUp|TestIdlePickUpOfShards|TestNoticeToAllReleased)$"},
		{"./internal/test/worker/fleets", "^TestRoundTripsOfAStart$"},
		{"./internal/test/worker/evictions", "^TestWorkersOfAVMStartAtOnce$"},
		{"./internal/checkpoint", "^TestSentForAChange$"},
	}
}

// measureOrder prints the log of these tests.
func (b *bench) measureOrder(ctx context.Context) error {
	var table grid
	table.add("Test", "In virtual time")
	for _, t := range inVirtualTime() {
		b.report("running %s of %s", t.tests, t.folder)
		if err := b.addLogged(ctx, &table, t.folder, t.tests); err != nil {
			return err
		}
	}
	b.say("## What the order of calls allows\n\n%s", &table)
	return nil
}

// logged is a line that a test logs: file, number, text.
var logged = regexp.MustCompile(`^\s+\w+_test\.go:\d+: (.+)`)

// addLogged adds a row for each line that the tests log.
func (b *bench) addLogged(ctx context.Context, table *grid, folder, tests string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-run", tests, folder) //nolint:gosec // tests that are named above
	cmd.Dir = b.root
	events, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || len(events) == 0) {
		return fmt.Errorf("%s of %s: %w", tests, folder, err)
	} else if failed != nil {
		table.add("`"+tests+"`", "FAILED: go test -run '"+tests+"' "+folder+" says why")
	}
	for line := range strings.Lines(string(events)) {
		var event struct{ Test, Output string }
		if json.Unmarshal([]byte(line), &event) != nil {
			continue // not of go test
		}
		if found := logged.FindStringSubmatch(event.Output); found != nil {
			table.add("`"+event.Test+"`", strings.TrimSpace(found[1]))
		}
	}
	return nil
}
