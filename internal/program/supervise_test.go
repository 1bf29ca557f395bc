package program

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// shrinking is a stop whose deadline comes nearer, like a drain's when a further notice
// leaves less time.
type shrinking struct{ deadline atomic.Pointer[time.Time] }

func (s *shrinking) Error() string { return "stopped" }

func (s *shrinking) Unwrap() error {
	return &job.Stop{Reason: job.Evicted, Deadline: *s.deadline.Load()}
}

func (s *shrinking) leave(left time.Duration) {
	deadline := time.Now().Add(left)
	s.deadline.Store(&deadline)
}

// nearer matches a stop file with less than four seconds left.
var nearer = regexp.MustCompile(`"seconds_left":[0-3]\b`)

// TestStopIsHastened: a program that does not stop is killed by the time that a
// later notice leaves, and the stop file has the new time.
func TestStopIsHastened(t *testing.T) {
	b := setup(t)
	w := b.begin(b.kind("stubborn"), "", nil)
	b.until("the program is ready", func() bool { return w.Latest() != nil })
	var stop shrinking
	stop.leave(time.Hour)
	w.cancel(&stop)
	told := func() string {
		files, _ := filepath.Glob(filepath.Join(b.scratch.Parent(), "*", "job-*", "stop"))
		if len(files) != 1 {
			return ""
		}
		text, _ := os.ReadFile(files[0])
		return string(text)
	}
	b.until("the stop is written down", func() bool { return strings.Contains(told(), `"seconds_left":35`) })
	stop.leave(4 * time.Second)
	b.until("the nearer stop is written down", func() bool { return nearer.MatchString(told()) })
	w.wait(t) // which is less patient than the first notice
	if w.err == nil || !job.IsInterrupted(w.err) {
		t.Errorf("handler = %v, want an interruption", w.err)
	}
}
