package trial

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// course is one job, from its first start to its outcome.
type course struct {
	Runs    []*programRun
	Ended   time.Time // zero while it is not over
	Done    bool      // or it failed permanently
	Reason  string    // why it failed
	Result  []byte
	Outputs map[string]string // hashes of the files that it has stored, by path
	Differs string            // how --compare-with found it to differ from the first job; empty if it is equal
	Unusual string            // why the observation of files is incomplete; empty if it is not
}

// took is how long the program ran in all.
func (c *course) took() (sum time.Duration) {
	for _, r := range c.Runs {
		sum += r.took()
	}
	return sum
}

// saves returns the checkpoints of all runs.
func (c *course) saves() []save {
	var all []save
	for _, r := range c.Runs {
		all = append(all, r.Saves...)
	}
	return all
}

// programRun is one start of the program, on one VM.
type programRun struct {
	VM        string
	Started   time.Time
	Resumed   bool    // it got a checkpoint, or was continued from its snapshot
	ResumedAt float64 // the fraction recorded with that
	Read      bool    // it has read that, or some of it

	Saves    []save
	Recorded []recorded
	InPlace  map[string]bool // "checkpoint", "result": written where they are collected
	Changed  bool            // a checkpoint was changed after it was put in place
	placed   bool            // one was renamed into place, and not collected yet

	Reports   int     // lines of progress
	Fraction  float64 // in the last of them
	First     float64 // in the first of them
	FirstSign time.Time

	Unfrozen string // why a snapshot of it was not taken; empty if all were

	Strike *strike
	Stop   time.Time // when the stop file appeared
	Ended  time.Time // when the program ended, or its VM was killed
	Exit   string    // as the worker's log has it; empty if the VM was killed
	Killed bool      // by the worker, since it had not ended in time
	Left   int       // processes that it left, and the worker ended
	Handed time.Time // when the job was released

	Files   map[string]int64 // in the program's own folders at the strike: sizes
	Outside map[string]int64 // outside of the job's folder, at the strike or the end: sizes
	Used    map[string]bool  // files there that the program read, or made its result of
	Outputs map[string]int   // how often each was made: by the worker from an earlier run, and by the program
	Saving  time.Time        // when the checkpoint was begun that was not finished at the end
	Strays  map[int]child    // outside of the program's process group
	Outlive map[int]child    // running after the job had left the worker
}

func (r *programRun) took() time.Duration {
	if r.Ended.IsZero() || r.Started.IsZero() {
		return 0
	}
	return r.Ended.Sub(r.Started)
}

// stopped is how long the program ran after it was asked to stop. The stop may be observed
// just after its end.
func (r *programRun) stopped() time.Duration { return max(0, r.Ended.Sub(r.Stop)) }

// save is a checkpoint that was put in place.
type save struct {
	Began, Placed time.Time // Began is zero if that was not observed
	Size          int64
	Files         int // 0 for a file
}

// recorded is a checkpoint in the job's record.
type recorded struct {
	At    time.Time
	Bytes int64
}

// kept returns when the checkpoint was put in place from which the next run resumes;
// zero if there is none of this run.
func (r *programRun) kept() (at time.Time) {
	limit := r.Handed // a release records the last one
	if limit.IsZero() && len(r.Recorded) > 0 {
		limit = r.Recorded[len(r.Recorded)-1].At
	}
	for _, s := range r.Saves {
		if !s.Placed.After(limit) {
			at = s.Placed
		}
	}
	return at
}

// redone is how long the program had worked since that checkpoint, when it was struck:
// work that the next run repeats. With a notice, the time after SIGTERM is not work.
func (r *programRun) redone() time.Duration {
	until := r.Ended
	if !r.Stop.IsZero() && r.Stop.Before(until) {
		until = r.Stop
	}
	from := r.kept()
	if from.IsZero() {
		from = r.Started
	}
	return max(0, until.Sub(from))
}

// recorder joins the reports of the observers about one job at a time. It is safe for
// concurrent use.
type recorder struct {
	mu      sync.Mutex
	course  *course
	drained map[string]bool
	changed chan struct{} // closed and replaced whenever something was seen

	sources  map[string]int // where checkpoints are made, by path in the job's folder
	writing  map[string]map[string]time.Time
	onSaving func(vm string) // called when a checkpoint is begun; nil if none is waited for
}

func newRecorder() *recorder {
	return &recorder{
		course: &course{}, drained: map[string]bool{}, changed: make(chan struct{}),
		sources: map[string]int{}, writing: map[string]map[string]time.Time{},
	}
}

// begin starts the record of another job.
func (r *recorder) begin() *course {
	c := &course{}
	r.see(func() { r.course = c })
	return c
}

func (r *recorder) see(what func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look calls see with the job's record, which may change later. changed is closed when
// there is more.
func (r *recorder) look(see func(c *course)) (changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	see(r.course)
	return r.changed
}

// running returns the run on a VM that has not ended, and makes one if make is set. The
// caller holds the lock.
func (r *recorder) running(vm string, start bool) *programRun {
	for _, known := range slices.Backward(r.course.Runs) {
		if known.VM == vm && known.Ended.IsZero() {
			return known
		}
	}
	if !start {
		return nil
	}
	next := &programRun{VM: vm, InPlace: map[string]bool{}, Used: map[string]bool{}, Outputs: map[string]int{}, Strays: map[int]child{},
		Outlive: map[int]child{}}
	r.course.Runs = append(r.course.Runs, next)
	r.writing[vm] = map[string]time.Time{}
	return next
}

// last returns the last run on a VM, ended or not.
func (r *recorder) last(vm string) *programRun {
	for _, known := range slices.Backward(r.course.Runs) {
		if known.VM == vm {
			return known
		}
	}
	return nil
}

// logLine holds the fields that are read of a line of a worker's log.
type logLine struct {
	Time      time.Time
	Msg       string
	ResumedAt float64 `json:"resumed_at"`
	Exit      string
	Killed    bool
	Left      int `json:"left_processes"`
	Bytes     int64
	Reason    string
	Error     string
}

// onLine is the fleet's hook for the workers' logs.
func (r *recorder) onLine(vm string, raw []byte) {
	var line logLine
	if json.Unmarshal(raw, &line) != nil {
		return
	}
	r.see(func() { r.logged(vm, line) })
}

func (r *recorder) logged(vm string, line logLine) {
	switch line.Msg {
	case "job started":
		now := r.running(vm, true)
		now.Started, now.ResumedAt = line.Time, line.ResumedAt
	case "program ended":
		if now := r.running(vm, false); now != nil {
			now.Ended, now.Exit, now.Killed, now.Left = line.Time, line.Exit, line.Killed, line.Left
			now.Saving = r.unfinished(vm)
		}
	case "job committed":
		r.course.Ended, r.course.Done = line.Time, true
	case "message moved to the poison queue":
		r.course.Ended, r.course.Reason = line.Time, line.Reason
	case "drained":
		r.drained[vm] = true
	}
	if now := r.last(vm); now != nil {
		now.logged(line)
	}
}

// logged records an action of the worker for a run.
func (r *programRun) logged(line logLine) {
	switch line.Msg {
	case "checkpoint saved":
		r.Recorded = append(r.Recorded, recorded{line.Time, line.Bytes})
	case "job released":
		r.Handed = line.Time
	case msgContinued:
		r.Resumed = true
		r.sign(line.Time)
		return
	case msgNotFrozen, msgNotFrozenLast:
		r.Unfrozen = line.Error
		return
	case "message moved to the poison queue":
	default:
		return
	}
	if line.Msg != "checkpoint saved" && r.Ended.IsZero() { // it was stopped before its program ran
		r.Ended = line.Time
	}
}

// struck records a strike against a run. A checkpoint that is being made is not kept for the
// next run.
func (r *recorder) struck(vm string, s strike, files, apart map[string]int64) {
	r.see(func() {
		maps.DeleteFunc(files, func(name string, _ int64) bool { return r.isSource(name) })
		if now := r.last(vm); now != nil && now.Strike == nil {
			now.Strike, now.Files, now.Outside = &s, files, apart
		}
	})
}

// gone records that a VM was killed.
func (r *recorder) gone(vm string, at time.Time) {
	r.see(func() {
		if now := r.running(vm, false); now != nil {
			now.Saving = r.unfinished(vm)
			now.Ended = at
		}
	})
}

// whenSaving calls act once, when a checkpoint is begun.
func (r *recorder) whenSaving(act func(vm string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onSaving = act
}

// isSource reports whether checkpoints are made at a path. Names that are different each
// time are files in a folder in which checkpoints were made before.
func (r *recorder) isSource(name string) bool {
	if name == checkpointName || r.sources[name] > 0 || isSnapshot(name) {
		return true
	}
	for known, times := range r.sources {
		if strings.HasPrefix(name, known+"/") {
			return true
		}
		if times == 1 && len(r.sources) > 2 && path.Dir(known) == path.Dir(name) {
			return true
		}
	}
	return false
}

// unfinished returns since when a checkpoint is being written; zero for none.
func (r *recorder) unfinished(vm string) (since time.Time) {
	for name, began := range r.writing[vm] {
		if r.isSource(name) && began.After(since) {
			since = began
		}
	}
	return since
}
