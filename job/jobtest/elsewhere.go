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
	// requestEnv names the file with the request, in the environment of a test
	// that was started to answer one.
	requestEnv = "SPOTWORKER_JOBTEST_REQUEST"

	// answerPatience bounds the time of such a test.
	answerPatience = time.Minute
)

// request asks a new process to resume a job.
type request struct {
	ID, Kind string
	Payload  []byte
	State    []byte
	Streamed bool
	Version  int
	Fraction float64
}

// reply is what that came to, and what the job comes to there from the beginning.
type reply struct {
	Resumed, Fresh ending
}

// ending is the end of a job.
type ending struct {
	Result []byte
	Fault  string
}

// otherProcess resumes a job in a process that has done nothing else, as a worker
// does that was just started. What a package-level variable holds is not there.
func (t *trial) otherProcess(ctx context.Context) error {
	if t.elsewhere == nil || t.SameProcess || !t.alone || t.reports == 0 || len(t.effects.happened) > 0 {
		return nil
	}
	s, n := t.begin(), (t.reports+1)/2
	killed := t.call(ctx, s, nil, &moment{place: atReport, n: n, kill: true, recorded: n}, t.places)
	from := killed.recorded()
	if killed.broke() != nil || !killed.killed || from == nil {
		return nil // it makes fewer reports by now
	}
	got, failed := t.elsewhere(ctx, request{
		ID: t.ID, Kind: t.Kind, Payload: t.Payload,
		State: from.bytes, Streamed: from.streamed, Version: from.version, Fraction: from.fraction,
	})
	switch {
	case failed != nil:
		t.notElsewhere = "not resumed in another process: " + failed.Error()
		return nil //nolint:nilerr // that proves nothing about the handler
	case got.Fresh.Fault != "" || !t.Same(t.result, got.Fresh.Result):
		t.notElsewhere = "not resumed in another process: there the test makes another world, in which the job ends otherwise"
		return nil
	case got.Resumed.Fault == "" && t.Same(t.result, got.Resumed.Result):
		return nil
	}
	detail := "in a new process it came to this: " + got.Resumed.Fault
	if got.Resumed.Fault == "" {
		detail = fmt.Sprintf("resumed in a new process it returned %s, want %s", show(got.Resumed.Result), show(t.result))
	}
	return s.failWanting(&fault{
		what: "a run needs what another one left in the process", detail: detail,
		hint: "In this process the job ends well from the same state: look for a package-level variable or cache. A worker that was just started has none of it: put what is needed into the state.",
	}, t.result)
}

// ask has the test of that name started in a new process to answer a request.
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
		"-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.timeout="+answerPatience.String())
	cmd.Env = append(os.Environ(), requestEnv+"="+file)
	ended := cmd.Run() // no matter how, if it answered
	if data, err = os.ReadFile(answerTo(file)); err != nil {
		return r, fmt.Errorf("the test does not come to this job there: %w", cmp.Or(ended, err))
	}
	return r, json.Unmarshal(data, &r)
}

func answerTo(request string) string { return request + ".answer" }

// serve answers a request in the process that was started for it, if it is about
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
	from := &state{bytes: q.State, streamed: q.Streamed, version: q.Version, fraction: q.Fraction, source: "another process"}
	r := reply{Resumed: t.endFrom(ctx, from)} // first: nothing was done here yet
	r.Fresh = t.endFrom(ctx, nil)
	if data, err = json.Marshal(r); err != nil {
		return false, err
	}
	return true, os.WriteFile(answerTo(file), data, 0o600)
}

// endFrom does a job from a state to its end.
func (t *trial) endFrom(ctx context.Context, from *state) ending {
	s := t.begin()
	if f := t.completeFrom(ctx, s, from, nil, ranks{}); f != nil {
		return ending{Fault: f.what + ": " + f.detail}
	}
	return ending{Result: s.last().result}
}
