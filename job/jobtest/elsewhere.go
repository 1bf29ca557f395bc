package jobtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spotworker/spotworker/job"
)

const (
	// requestEnv is the variable with the name of the request's file, for a test that
	// was started to answer it.
	requestEnv = "SPOTWORKER_JOBTEST_REQUEST"

	// answerTimeout is the time limit of such a test.
	answerTimeout = time.Minute
)

// request asks a new process to resume a job from a state.
type request struct {
	ID, Kind string
	Payload  []byte
	State    []byte
	Streamed bool
	Version  int
	Fraction float64
}

// reply has the ends of the resumed job, and of the job from the beginning.
type reply struct {
	Resumed, Fresh ending
}

// ending is the result or the fault of a job.
type ending struct {
	Result []byte
	Fault  string
}

// otherProcess resumes a job in a new process, as in a worker that has just started.
// There, package-level variables have their initial values.
func (t *trial) otherProcess(ctx context.Context) error {
	if t.elsewhere == nil || t.SameProcess || !t.alone || t.reports == 0 || t.effects.any() {
		return nil
	}
	s, n := t.begin(), (t.reports+1)/2
	killed := t.call(ctx, s, nil, &moment{place: atReport, n: n, kill: true, recorded: n}, t.places)
	from := killed.recorded()
	if killed.firstFault() != nil || !killed.killed || from == nil {
		return nil // this run made fewer reports
	}
	got, failed := t.elsewhere(ctx, request{
		ID: t.ID, Kind: t.Kind, Payload: t.Payload,
		State: from.bytes, Streamed: from.streamed, Version: from.version, Fraction: from.fraction,
	})
	switch {
	case failed != nil:
		t.otherProcessSkipped = "not resumed in another process: " + failed.Error()
		return nil //nolint:nilerr // that proves nothing about the handler
	case got.Fresh.Fault != "" || !t.Same(t.result, got.Fresh.Result):
		t.otherProcessSkipped = "not resumed in another process: the test sets up something different there, so that the job has another result"
		return nil
	case got.Resumed.Fault == "" && t.Same(t.result, got.Resumed.Result):
		return nil
	}
	detail := "resumed in a new process it failed: " + got.Resumed.Fault
	if got.Resumed.Fault == "" {
		detail = fmt.Sprintf("resumed in a new process it returned %s, want %s", show(got.Resumed.Result), show(t.result))
	}
	return s.failWanting(&defect{
		what: "a run needs what another one left in the process", detail: detail,
		hint: "In this process the job finishes from the same state: look for a package-level variable or cache. A worker that has just " +
			"started does not have its content: put what is needed into the state.",
	}, t.result)
}

// ask starts the test of that name in a new process and returns its reply.
func ask(ctx context.Context, test string, q request) (reply, error) {
	var r reply
	dir, err := os.MkdirTemp("", "jobtest")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	file := filepath.Join(dir, "request")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return r, err
	}
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, program, //nolint:gosec // this very program
		"-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.timeout="+answerTimeout.String())
	cmd.Env = append(os.Environ(), requestEnv+"="+file)
	ended := cmd.Run() // its exit code does not matter if it has replied
	if data, err = os.ReadFile(answerTo(file)); err != nil {
		return r, fmt.Errorf("the test does not run this job there: %w", cmp.Or(ended, err))
	}
	return r, json.Unmarshal(data, &r)
}

func answerTo(request string) string { return request + ".answer" }

// serve answers a request in the process that was started for it, if the request is for
// this job.
func serve(ctx context.Context, test, file string, newHandler func() job.Handler, c Case) (served bool, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("jobtest of %s: %w", test, err)
	}
	var q request
	if err := json.Unmarshal(data, &q); err != nil {
		return false, fmt.Errorf("jobtest of %s: %w", test, err)
	}
	c.setDefaults()
	if c.ID != q.ID || c.Kind != q.Kind || !bytes.Equal(c.Payload, q.Payload) {
		return false, nil
	}
	t := &trial{Case: c, newHandler: newHandler}
	from := &savedState{bytes: q.State, streamed: q.Streamed, version: q.Version, fraction: q.Fraction, source: "another process"}
	r := reply{Resumed: t.endFrom(ctx, from)} // first, in the untouched process
	r.Fresh = t.endFrom(ctx, nil)
	if data, err = json.Marshal(r); err != nil {
		return false, err
	}
	return true, os.WriteFile(answerTo(file), data, 0o600)
}

// endFrom does a job from a state, nil for a fresh start, to its end.
func (t *trial) endFrom(ctx context.Context, from *savedState) ending {
	s := t.begin()
	if f := t.completeFrom(ctx, s, from, nil, ranks{}); f != nil {
		return ending{Fault: f.what + ": " + f.detail}
	}
	return ending{Result: s.last().result}
}
