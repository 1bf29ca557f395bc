package jobtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/job"
)

// counted is the state of the handlers in this file: they add up 0 … n-1.
type counted struct{ Next, Sum int }

const steps = 6

func (c counted) encode() []byte {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return raw
}

func (c counted) report(j *job.Job) {
	j.Report(job.Progress{State: c.encode(), Version: 1, Fraction: float64(c.Next) / steps, Text: strconv.Itoa(c.Next)})
}

func restore(j *job.Job) (c counted, err error) {
	if err := j.CheckVersion(1); err != nil {
		return c, err
	}
	if saved, _, ok := j.Saved(); ok {
		err = json.Unmarshal(saved, &c)
	}
	return c, err
}

func (c counted) result() []byte { return []byte(strconv.Itoa(c.Sum)) }

// adder is a handler that does it right.
func adder(ctx context.Context, j *job.Job) ([]byte, error) {
	c, err := restore(j)
	if err != nil {
		return nil, err
	}
	for c.Next < steps {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.Sum += c.Next
		c.Next++
		c.report(j)
	}
	return c.result(), nil
}

// beast is a handler that is wrong, and why Run must not let it pass.
type beast struct {
	name   string
	new    func(t *testing.T, c *Case) func() job.Handler
	what   string // the rule that it breaks
	detail string // a part of its story
}

// of is a beast that needs nothing in the case.
func of(f job.HandlerFunc) func(*testing.T, *Case) func() job.Handler {
	return func(*testing.T, *Case) func() job.Handler { return always(f) }
}

// always gives every run the same function.
func always(f job.HandlerFunc) func() job.Handler { return func() job.Handler { return f } }

var zoo = []beast{
	{"captures its state before the work", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		c, err := restore(j)
		for ; c.Next < steps && err == nil; err = ctx.Err() {
			item := c.Next
			c.Next++
			c.report(j)
			c.Sum += item
		}
		return c.result(), err
	}), "the result differs", `want "15"`},

	{"has an effect without a key", effectful(func(*job.Job, int) string { return "" }),
		"an effect happened twice", `happened 2 times, want 1`},

	{"has one key for every job", effectful(func(_ *job.Job, i int) string { return fmt.Sprint("mail ", i) }),
		"two jobs use one idempotency key", `key "mail 0"`},

	{"has one key for all effects", effectful(func(j *job.Job, _ int) string { return j.Key("mail") }),
		"one idempotency key stands for two effects", `"mail 0" and for "mail 1"`},

	{"reports before its effect", func(_ *testing.T, c *Case) func() job.Handler {
		return always(func(ctx context.Context, j *job.Job) ([]byte, error) {
			n, err := restore(j)
			for ; n.Next < steps && err == nil; err = ctx.Err() {
				mail := fmt.Sprint("mail ", n.Next)
				n.Next++
				n.report(j)
				c.Effects.Apply(j.Key(mail), mail)
			}
			return nil, err
		})
	}, "an effect did not happen", `never happened`},

	{"ignores its context", of(func(_ context.Context, j *job.Job) ([]byte, error) { return adder(context.Background(), j) }),
		"the handler ignores its context", "it reported 2 more states after its context was cancelled; 1 allowed"},

	{"sleeps without its context", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for i := range steps {
			time.Sleep(time.Hour)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			counted{Next: i + 1}.report(j)
		}
		return nil, nil
	}), "the handler ignores its context", "it had not returned 5s after its context was cancelled"},

	{"returns a part as the whole", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		c, err := restore(j)
		for ; c.Next < steps && ctx.Err() == nil; c.report(j) {
			c.Sum += c.Next
			c.Next++
		}
		return c.result(), err
	}), "a run that was stopped returned no error before the job was done",
		`its last state was nothing; an uninterrupted run ends with "{\"Next\":6`},

	{"leaves its loop only once it was resumed", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if _, _, ok := j.Saved(); !ok {
			return adder(ctx, j)
		}
		c, err := restore(j)
		for ; c.Next < steps && ctx.Err() == nil && err == nil; c.report(j) {
			c.Sum += c.Next
			c.Next++
		}
		return c.result(), err
	}), "a run that was stopped returned no error before the job was done", `of 6 of an uninterrupted run`},

	{"leaves its loop and reports no state", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for i := range steps {
			if ctx.Err() != nil {
				break
			}
			j.Report(job.Progress{Fraction: float64(i+1) / steps})
		}
		return nil, nil
	}), "a run that was stopped returned no error before the job was done", `it made 0 reports; an uninterrupted run makes 6`},

	{"sums up in a package variable", func(*testing.T, *Case) func() job.Handler {
		sums := map[string]int{} // stands for a variable of the package: it outlives all handlers
		return always(func(ctx context.Context, j *job.Job) ([]byte, error) {
			c, err := restore(j)
			for c.Next < steps {
				if err != nil || ctx.Err() != nil {
					return nil, errors.Join(err, ctx.Err())
				}
				sums[j.ID] += c.Next
				c.Next++
				counted{Next: c.Next}.report(j)
			}
			defer delete(sums, j.ID)
			return counted{Sum: sums[j.ID]}.result(), nil
		})
	}, "the result differs", `want "15"`},

	{"keeps a job in its fields", func(*testing.T, *Case) func() job.Handler {
		return func() job.Handler {
			var sum int
			first := true
			return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				c, err := restore(j)
				if first {
					sum, first = c.Sum, false
				}
				for c.Next < steps {
					if err != nil || ctx.Err() != nil {
						return nil, errors.Join(err, ctx.Err())
					}
					sum += c.Next
					c.Next++
					counted{Next: c.Next, Sum: sum}.report(j)
				}
				return counted{Sum: sum}.result(), nil
			})
		}
	}, "a handler's second job differs", `got "30", want "15"`},

	{"leaves a goroutine behind", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		go func() { time.Sleep(time.Hour) }()
		return adder(ctx, j)
	}), "goroutines are left over", `the last in github.com/spotworker/spotworker/job/jobtest.`},

	{"reads any version", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		return adder(ctx, versioned(j, 1))
	}), "a state of an unknown version was read", `returned "15"`},

	{"starts over with an unknown version", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if j.CheckVersion(1) != nil {
			return adder(ctx, fresh(j))
		}
		return adder(ctx, j)
	}), "a state of an unknown version was replaced", `it reported the state "{\"Next\"`},

	{"gives a job up for its version", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if err := j.CheckVersion(1); err != nil {
			return nil, job.Permanent(err)
		}
		return adder(ctx, j)
	}), "a state of an unknown version ended the job", `reads 1: let workers of the program that wrote it finish the job`},

	{"depends on time", of(func(context.Context, *job.Job) ([]byte, error) {
		time.Sleep(time.Second)
		return []byte(time.Now().String()), nil
	}), "two uninterrupted runs differ", `got "`},

	{"starts over", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		return adder(ctx, fresh(j))
	}), "progress goes backwards", "has fraction 0.16"},

	{"starts over and reports no fraction", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for i := range steps {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			j.Report(job.Progress{State: []byte{byte(i)}})
		}
		return nil, nil
	}), "progress goes backwards", "which is state 1 of an uninterrupted run"},

	{"reuses its buffer", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		c, err := restore(j)
		buffer := make([]byte, 0, 100)
		for ; c.Next < steps && err == nil; err = ctx.Err() {
			c.Sum += c.Next
			c.Next++
			buffer = append(buffer[:0], c.encode()...)
			j.Report(job.Progress{State: buffer})
		}
		return c.result(), err
	}), "a state was changed after it was reported", `of report 1 of run 1 was "{\"Next\":1,\"Sum\":0}" and became "{\"Next\":2,\"Sum\":1}"`},

	{"writes on in the file it reported", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		return appendTo(ctx, j, func(name string, _ int) string { return name })
	}), "a state was changed after it was reported", `was "0" and became "01"`},

	{"removes the file it reported", of(func(_ context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return nil, os.ErrNotExist }})
		return nil, nil
	}), "a state cannot be recorded", "file does not exist"},

	{"cannot read what it wrote", of(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if _, _, ok := j.Saved(); ok {
			return nil, errors.New("unexpected end of input")
		}
		return adder(ctx, j)
	}), "the handler cannot continue from its own state", "unexpected end of input"},

	{"takes a stream for a piece", of(func(_ context.Context, j *job.Job) ([]byte, error) {
		_, _, _ = j.Saved()
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("s")), nil }})
		return nil, nil
	}), "the handler panicked", "read it with OpenSaved"},

	{"leaves what it opened open", of(func(_ context.Context, j *job.Job) ([]byte, error) {
		if _, _, err := j.OpenSaved(); err != nil {
			return nil, err
		}
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("s")), nil }})
		return nil, nil
	}), "the recorded state was not closed", "1 stream from OpenSaved still open"},

	{"has a state that is too large", of(func(_ context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: make([]byte, job.MaxState+1)})
		return nil, nil
	}), "a state is too large", "report 1 has a state of 8388609 bytes"},

	{"has a result that is too large", of(func(context.Context, *job.Job) ([]byte, error) {
		return make([]byte, job.MaxResult+1), nil
	}), "the result is too large", "1048577 bytes"},

	{"counts its progress in percent", of(func(_ context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{Fraction: 50})
		return nil, nil
	}), "a fraction is out of range", "report 1 has fraction 50"},

	{"fails without an interruption", of(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("no such image") }),
		"the handler fails without any interruption", `no such image`},

	{"takes breaks for ever", of(func(context.Context, *job.Job) ([]byte, error) {
		return nil, job.Interrupted(errors.New("later"))
	}), "the job never ends", "took 1000 breaks"},

	{"panics", of(func(context.Context, *job.Job) ([]byte, error) { panic("index out of range") }),
		"the handler panicked", "index out of range"},

	{"leaves half a file behind", func(t *testing.T, c *Case) func() job.Handler {
		name := filepath.Join(t.TempDir(), "out")
		c.Reset = func() { _ = os.Remove(name) }
		c.Check = func([]byte) error { return sameFile(name, "012345") }
		return always(func(ctx context.Context, j *job.Job) ([]byte, error) { return nil, appendItems(ctx, j, name) })
	}, "Case.Check fails", `"0`},
}

// TestZoo runs handlers that are wrong. Each is caught, and for the
// rule that it breaks.
func TestZoo(t *testing.T) {
	for _, b := range zoo {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Case{Effects: &Effects{}}
				defer time.Sleep(24 * time.Hour) // until handlers that ignore their context have ended
				newHandler := b.new(t, &c)
				_, err := prove(t.Context(), newHandler, c)
				if err == nil {
					t.Fatal("it was not caught")
				}
				told := err.Error()
				if head, _, _ := strings.Cut(told, "\n"); !strings.HasPrefix(head, "jobtest: "+b.what) {
					t.Errorf("caught for %q, want %q", head, b.what)
				}
				if !strings.Contains(told, b.detail) {
					t.Errorf("the story lacks %q", b.detail)
				}
				t.Log(told)
			})
		})
	}
}

// effectful is a handler that sends a mail for each item, under a key.
func effectful(key func(j *job.Job, i int) string) func(*testing.T, *Case) func() job.Handler {
	return func(_ *testing.T, c *Case) func() job.Handler {
		effects := c.Effects
		return always(func(ctx context.Context, j *job.Job) ([]byte, error) {
			n, err := restore(j)
			for n.Next < steps && err == nil && ctx.Err() == nil {
				effects.Apply(key(j, n.Next), fmt.Sprint("mail ", n.Next))
				n.Next++
				n.report(j)
			}
			return nil, errors.Join(err, ctx.Err())
		})
	}
}

// versioned is the job with its state under another version.
func versioned(j *job.Job, version int) *job.Job {
	var saved *job.Progress
	if state, _, ok := j.Saved(); ok {
		saved = &job.Progress{State: state, Version: version}
	}
	again := job.New(j.Spec, saved)
	job.ControlOf(again).OnReport(func(p *job.Progress) { j.Report(*p) })
	return again
}

// fresh is the job without its state.
func fresh(j *job.Job) *job.Job {
	again := job.New(j.Spec, nil)
	job.ControlOf(again).OnReport(func(p *job.Progress) { j.Report(*p) })
	return again
}

// appendTo is a handler whose state is a file that grows. next says where each
// version of it is written.
func appendTo(ctx context.Context, j *job.Job, next func(name string, i int) string) ([]byte, error) {
	if err := j.CheckVersion(0); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zoo")
	if err != nil {
		return nil, err
	}
	j.Cleanup(func() { _ = os.RemoveAll(dir) })
	var content []byte
	if saved, _, err := j.OpenSaved(); err != nil {
		return nil, err
	} else if saved != nil {
		if content, err = io.ReadAll(saved); err != nil {
			return nil, err
		}
		if err := saved.Close(); err != nil {
			return nil, err
		}
	}
	for i := len(content); i < steps; i++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		content = append(content, '0'+byte(i))
		name := next(filepath.Join(dir, "state"), i)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return nil, err
		}
		j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	return content, nil
}

// appendItems appends to a file without checking its content.
func appendItems(ctx context.Context, j *job.Job, name string) error {
	c, err := restore(j)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for ; c.Next < steps; c.report(j) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := fmt.Fprint(file, c.Next); err != nil {
			return err
		}
		c.Next++
	}
	return nil
}

func sameFile(name, want string) error {
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, []byte(want)) {
		return fmt.Errorf("the file holds %q, want %q", got, want)
	}
	return nil
}
