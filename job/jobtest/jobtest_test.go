package jobtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGoodHandlers runs handlers that are right, each in a way of its
// own that must not be taken for a fault.
func TestGoodHandlers(t *testing.T) {
	for name, f := range map[string]job.HandlerFunc{
		"a cursor":                  adder,
		"no report":                 func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil },
		"a new file for each state": growing,
		"steps at once":             parallel,
		"states that come again":    toggling,
		"a last report when stopped": func(ctx context.Context, j *job.Job) ([]byte, error) {
			return lastWords(ctx, j)
		},
		"time-outs of its own": func(ctx context.Context, j *job.Job) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			return adder(ctx, j)
		},
		"a goroutine that reports": elsewhere,
		"breaks":                   breaking,
		"a goroutine that ends a little later": func(ctx context.Context, j *job.Job) ([]byte, error) {
			go time.Sleep(20 * time.Millisecond)
			return adder(ctx, j)
		},
		"a goroutine that serves all runs": serving(t),
		"no error when stopped, and nothing that shows an end": func(ctx context.Context, j *job.Job) ([]byte, error) {
			select {
			case <-ctx.Done(): // before it began; a worker calls it again
			default:
			}
			return nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, always(f), Case{Payload: []byte("payload")})
		})
	}
}

// serving starts a goroutine that outlives the run which needed it first.
func serving(t *testing.T) job.HandlerFunc {
	var once sync.Once
	numbers, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func(ctx context.Context, j *job.Job) ([]byte, error) {
		once.Do(func() {
			go func() {
				for n := 0; ; n++ {
					select {
					case numbers <- n:
					case <-end:
						return
					}
				}
			}()
		})
		<-numbers
		return adder(ctx, j)
	}
}

// growing reports a new file each time.
func growing(ctx context.Context, j *job.Job) ([]byte, error) {
	return appendTo(ctx, j, func(name string, i int) string { return fmt.Sprint(name, i) })
}

// parallel does two items at once, under a context of its own.
func parallel(ctx context.Context, j *job.Job) ([]byte, error) {
	c, err := restore(j)
	if err != nil {
		return nil, err
	}
	for ; c.Next < steps; c.report(j) {
		group, ctx := errgroup.WithContext(ctx)
		var sums [2]int
		for i := range sums {
			group.Go(func() error {
				sums[i] = c.Next + i
				return ctx.Err()
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		c.Sum += sums[0] + sums[1]
		c.Next += 2
	}
	return c.result(), nil
}

// toggling has only two states, which come again and again.
func toggling(ctx context.Context, j *job.Job) ([]byte, error) {
	if err := j.CheckVersion(0); err != nil {
		return nil, err
	}
	saved, _, _ := j.Saved()
	on := string(saved) == "on"
	for range steps {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		on = !on
		j.Report(job.Progress{State: map[bool][]byte{true: []byte("on"), false: []byte("off")}[on]})
	}
	return nil, nil
}

// lastWords reports its state only when it is stopped.
func lastWords(ctx context.Context, j *job.Job) ([]byte, error) {
	c, err := restore(j)
	if err != nil {
		return nil, err
	}
	for c.Next < steps {
		if ctx.Err() != nil {
			c.report(j)
			return nil, job.StopOf(ctx)
		}
		c.Sum += c.Next
		c.Next++
	}
	return c.result(), nil
}

// elsewhere works and reports in another goroutine than the one it was called in.
func elsewhere(ctx context.Context, j *job.Job) (result []byte, err error) {
	var group errgroup.Group
	group.Go(func() error {
		result, err = adder(ctx, j)
		return err
	})
	err = group.Wait()
	return result, err
}

// breaking takes a break after every second step.
func breaking(ctx context.Context, j *job.Job) ([]byte, error) {
	c, err := restore(j)
	if err != nil {
		return nil, err
	}
	for n := 0; c.Next < steps; n++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if n == 2 {
			return nil, job.Interrupted(errors.New("enough for now"))
		}
		c.Sum += c.Next
		c.Next++
		c.report(j)
	}
	return c.result(), nil
}

// TestKeyedEffects: effects under keys of the job happen once.
func TestKeyedEffects(t *testing.T) {
	c := Case{Effects: &Effects{}}
	Run(t, effectful(func(j *job.Job, i int) string { return j.Key(fmt.Sprint("mail ", i)) })(t, &c), c)
}

// TestVirtualTime does a job of hours, over and over, in no time.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stops sync.Map
		began := time.Now()
		Run(t, always(func(ctx context.Context, j *job.Job) ([]byte, error) {
			c, err := restore(j)
			if err != nil {
				return nil, err
			}
			for ; c.Next < steps; c.report(j) {
				select {
				case <-ctx.Done():
					stop := job.StopOf(ctx)
					stops.Store(stop.Reason, time.Until(stop.Deadline))
					return nil, stop
				case <-time.After(time.Hour):
				}
				c.Sum += c.Next
				c.Next++
			}
			return c.result(), nil
		}), Case{})
		if waited := time.Since(began); waited < 24*time.Hour {
			t.Errorf("the runs took %s of virtual time, want many hours", waited)
		}
		if left, ok := stops.Load(job.Evicted); !ok || left != 5*time.Second {
			t.Errorf("a stopped handler had %v left, want %s for the reason %q", left, 5*time.Second, job.Evicted)
		}
	})
}

// TestManyReports: the number of runs stays within bounds, which are the caller's.
func TestManyReports(t *testing.T) {
	calls := 0
	long := func() job.Handler {
		return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			calls++
			if err := j.CheckVersion(0); err != nil {
				return nil, err
			}
			next := uint64(0)
			if saved, _, ok := j.Saved(); ok {
				next = binary.BigEndian.Uint64(saved)
			}
			for ; next < 1000; next++ {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				j.Report(job.Progress{State: binary.BigEndian.AppendUint64(nil, next+1)})
			}
			return nil, nil
		})
	}
	for runs, most := range map[int]int{0: defaultRuns, 50: 50} {
		calls = 0
		summary, err := prove(t.Context(), long, Case{Runs: runs})
		if err != nil {
			t.Fatal(err)
		}
		if calls > most || calls < most*8/10 {
			t.Errorf("calls of the handler with Runs %d = %d, want nearly %d and no more", runs, calls, most)
		}
		if !strings.Contains(summary, "a sample with seed 0") {
			t.Errorf("summary %q does not say that it was a sample", summary)
		}
		t.Log(summary)
	}
}

// TestRunFailsTheTest: people see the story.
func TestRunFailsTheTest(t *testing.T) {
	failed := &recorder{TB: t}
	Run(failed, always(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("no such image") }), Case{})
	want := `jobtest: the handler fails without any interruption
  no such image
  run 1: fresh start; 0 reports; returned the error "no such image"`
	if failed.fatal != want {
		t.Errorf("Run told\n%s\nwant\n%s", failed.fatal, want)
	}
}

// recorder keeps the output of a test that fails.
type recorder struct {
	testing.TB
	fatal, log string
}

func (r *recorder) Helper()           {}
func (r *recorder) Log(args ...any)   { r.log = fmt.Sprint(args...) }
func (r *recorder) Fatal(args ...any) { r.fatal = fmt.Sprint(args...) }

// TestLongStory: what happened in the middle of many runs is left out.
func TestLongStory(t *testing.T) {
	const n = 20
	wrongAtLast := always(func(ctx context.Context, j *job.Job) ([]byte, error) {
		saved, _, _ := j.Saved() // the numbers of the runs that led here
		if len(saved) == n-1 && saved[n-2] == n-2 {
			return []byte("wrong"), nil
		}
		run := byte(0)
		if len(saved) > 0 {
			run = saved[len(saved)-1] + 1
		}
		for state := saved; len(state) < n; {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			state = append(bytes.Clone(state), run)
			j.Report(job.Progress{State: state})
		}
		return []byte("right"), nil
	})
	_, err := prove(t.Context(), wrongAtLast, Case{})
	if err == nil {
		t.Fatal("a wrong result was not noticed")
	}
	told := err.Error()
	for _, part := range []string{"  run 1: ", "  run 3: ", "  ... 14 more runs ...\n", "  run 18: ", "  run 20: ", `returned "wrong"`,
		`an uninterrupted run returns "right"`} {
		if !strings.Contains(told, part) {
			t.Errorf("the story lacks %q", part)
		}
	}
	t.Log(told)
}

// TestEveryRunHasItsOwn: the handler gets copies. If it changes the payload or the
// state, no other run sees the change.
func TestEveryRunHasItsOwn(t *testing.T) {
	Run(t, always(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if string(j.Payload) != "payload" || j.ID != "a" || j.Kind != "b" || j.Attempt != 1 {
			return nil, fmt.Errorf("job = %+v, want that of the case", j.Spec)
		}
		clear(j.Payload)
		result, err := adder(ctx, j)
		if saved, _, ok := j.Saved(); ok {
			clear(saved)
		}
		return result, err
	}), Case{ID: "a", Kind: "b", Payload: []byte("payload")})
}

// found is a variable of the package, such as a cache: the sums before each item that
// the handlers of this process know.
var found = map[int]int{}

// TestPackageVariable: a state with only half of the data, and the other half in a
// variable of this process, does not get past a new process.
func TestPackageVariable(t *testing.T) {
	cached := always(func(ctx context.Context, j *job.Job) ([]byte, error) {
		c, err := restore(j)
		for c.Next < steps {
			if err != nil || ctx.Err() != nil {
				return nil, errors.Join(err, ctx.Err())
			}
			found[c.Next+1] = found[c.Next] + c.Next
			c.Next++
			counted{Next: c.Next}.report(j)
		}
		return counted{Sum: found[c.Next]}.result(), err
	})
	failed := &recorder{TB: t}
	Run(failed, cached, Case{})
	for _, part := range []string{
		"jobtest: a run needs what another one left in the process\n", `resumed in a new process it returned "12", want "15"`,
		"a package-level variable or cache",
	} {
		if !strings.Contains(failed.fatal, part) {
			t.Errorf("the story lacks %q", part)
		}
	}
	t.Log(failed.fatal)
	Run(t, cached, Case{SameProcess: true}) // which finds nothing
}

// TestOtherWorld: where the test sets up something different in a new process, what comes
// of the job there proves nothing.
func TestOtherWorld(t *testing.T) {
	world := fmt.Sprint(os.Getpid())
	said := &recorder{TB: t}
	Run(said, always(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if _, err := adder(ctx, j); err != nil {
			return nil, err
		}
		return []byte(world), nil
	}), Case{})
	if said.fatal != "" || !strings.Contains(said.log, "not resumed in another process: the test sets up something different there") {
		t.Errorf("Run said %q %q, want it to pass, and that it was not compared", said.fatal, said.log)
	}
}
