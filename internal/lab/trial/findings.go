package trial

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// Severity is the meaning of a finding for the verdict.
type Severity string

// The severities.
const (
	Problem Severity = "problem" // the program is not interruptible
	Warning Severity = "warning" // it is, at a price
	Remark  Severity = "remark"  // of the trial itself
)

// Finding is something that the trial found out.
type Finding struct {
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Advice   string   `json:"advice"`
}

// findings collects them.
type findings struct{ all []Finding }

func (f *findings) add(name string, s Severity, advice, what string, args ...any) {
	f.all = append(f.all, Finding{Name: name, Severity: s, What: fmt.Sprintf(what, args...), Advice: advice})
}

func (f *findings) has(name string) bool {
	return slices.ContainsFunc(f.all, func(one Finding) bool { return one.Name == name })
}

// find returns all findings, the gravest first.
func find(c Config, seen observed) []Finding {
	var f findings
	if len(seen.plain) > 0 {
		f.ofUndisturbed(c, seen)
	}
	if seen.snapshot {
		f.ofSnapshots(c, seen)
	} else {
		f.ofCheckpoints(c, seen)
	}
	f.ofProcesses(seen)
	f.ofTrial(c, seen)
	rank := map[Severity]int{Problem: 0, Warning: 1, Remark: 2}
	slices.SortStableFunc(f.all, func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] })
	return f.all
}

// ofCheckpoints is about a program that saves its state.
func (f *findings) ofCheckpoints(c Config, seen observed) {
	if seen.evicted != nil {
		f.ofOutcome(c, seen)
		f.ofStops(c, seen.evicted)
		f.ofSaving(seen)
	}
	f.ofFiles(seen)
}

func (f *findings) ofUndisturbed(c Config, seen observed) {
	for _, one := range seen.plain {
		if !one.Ended.IsZero() && !one.Done {
			if seen.snapshot && f.cannotFreeze(one) {
				return
			}
			if n := len(one.saves()); seen.snapshot && n > 0 {
				f.add("program-fails", Problem, "Try it without --snapshot. If it works then, snapshots break it: docs/jobs.md has what they cannot "+
					"keep.",
					"it fails without any eviction, after %d snapshots of it: %s", n, failureOf(one))
				return
			}
			f.add("program-fails", Problem, "Make it work as a job first: its folder, variables and exit codes are in docs/jobs.md.",
				"it fails without any eviction: %s", failureOf(one))
			if one != seen.plain[0] {
				f.outsideState(seen.plain[0])
			}
			return
		}
	}
	if len(seen.plain) < 2 || !seen.plain[1].Done {
		return
	}
	what := differ(c, seen.plain[0], seen.plain[1])
	if what != "" && seen.snapshot {
		f.add("result-differs", Problem, "If two runs without snapshots differ too, take out what differs. Otherwise a freeze changes what it "+
			"does. "+snapshotAdvice, "undisturbed runs with and without snapshots differ: %s", what)
	} else if what != "" {
		f.add("not-deterministic", Problem,
			"Take out what differs: seed the random numbers from the payload, leave times and names of machines out of the result. If both "+
				"results are right, give --compare-with a command that knows what may differ; if only the outputs differ, --compare result.",
			"two undisturbed runs differ: %s", what)
		f.outsideState(seen.plain[0])
	}
}

// ofOutcome compares the end of the evicted job with the undisturbed one.
func (f *findings) ofOutcome(c Config, seen observed) {
	job := seen.evicted
	switch {
	case job.Ended.IsZero():
		if seen.gaveUp != "" {
			f.add("not-finished", Problem, "An evicted job has to get further with each start: it must save before it is evicted, and resume "+
				"from what it saved.",
				"%s", seen.gaveUp)
		}
	case !job.Done:
		f.ofFailure(seen)
	default:
		f.ofResult(differ(c, job, seen.plain[0]), seen)
	}
	f.ofRestore(seen)
}

// ofRestore is about programs that start from the beginning although they got a
// checkpoint. The program's reports prove that. Without reports the time of its last run
// and the number of its saves are signs. A machine that is slow for a while gives the
// same signs: with them the program must also have left the checkpoint unread.
func (f *findings) ofRestore(seen observed) {
	job := seen.evicted
	if !job.Done || len(job.Runs) < 2 || !lastRun(job).Resumed {
		return
	}
	last := lastRun(job)
	severity := Problem
	var how string
	switch {
	case last.Reports > 0:
		if last.ResumedAt <= 0.1 || last.First >= last.ResumedAt/2 {
			return
		}
		how = fmt.Sprintf("%.0f %% were done, and it reported %.0f %%", 100*last.ResumedAt, 100*last.First)
	case !beganAgain(seen):
		return
	default:
		how = fmt.Sprintf("its last run took %s, an undisturbed one takes %s", text.Duration(last.took()), text.Duration(seen.usual()))
		if last.Read {
			severity = Warning
			how += "; it has read the checkpoint, so the machine may have been slow"
		}
	}
	f.add("ignores-restore", severity, "If SPOTWORKER_RESTORE is set, load the checkpoint there and continue from it. Progress in "+
		"SPOTWORKER_PROGRESS shows whether it does.",
		"it got its checkpoint and started from the beginning all the same: %s", how)
}

func lastRun(c *course) *programRun { return c.Runs[len(c.Runs)-1] }

// ofFailure explains a failure after an eviction.
func (f *findings) ofFailure(seen observed) {
	job, last := seen.evicted, lastRun(seen.evicted)
	switch {
	case last.Resumed && f.wroteInPlace(job, checkpointName):
		f.add("torn-checkpoint", Problem, "Write each checkpoint to a file in TMPDIR and rename it to SPOTWORKER_CHECKPOINT when it is complete.",
			"it could not resume from a checkpoint that was collected while it was being written: %s", failureOf(job))
	case last.Resumed:
		f.add("cannot-resume", Problem, "All that the next run needs must be in the checkpoint. Its folder has another path on each VM: "+
			"an absolute path in its files leads nowhere. Try a run by hand with SPOTWORKER_RESTORE set to a checkpoint.",
			"it could not resume from its own checkpoint: %s", failureOf(job))
		f.scratchState(seen)
	default:
		f.add("cannot-restart", Problem, "After an eviction without a checkpoint the program starts again, on another VM: what it did before, "+
			"outside, must not be in its way.",
			"it failed when it was started again: %s", failureOf(job))
		f.scratchState(seen)
	}
}

// differ describes how two jobs differ in the compared parts; empty if they do not.
func differ(c Config, one, other *course) string {
	switch {
	case c.Compare == CompareNothing:
		return ""
	case c.CompareWith != "":
		return cmp.Or(one.Differs, other.Differs)
	}
	if !bytes.Equal(one.Result, other.Result) {
		return fmt.Sprintf("the results are %s and %s", show(one.Result), show(other.Result))
	}
	if c.Compare != CompareOutputs || maps.Equal(one.Outputs, other.Outputs) {
		return ""
	}
	for path := range one.Outputs {
		if one.Outputs[path] != other.Outputs[path] && other.Outputs[path] != "" {
			return fmt.Sprintf("the output %q has another content", path)
		}
	}
	return fmt.Sprintf("the outputs are %q and %q", slices.Sorted(maps.Keys(one.Outputs)), slices.Sorted(maps.Keys(other.Outputs)))
}

// ofResult explains a result that differs.
func (f *findings) ofResult(what string, seen observed) {
	if what == "" {
		return
	}
	if endedHalfDone(seen) {
		f.add("half-done", Problem, "Exit with 75 when SIGTERM comes before the end, and write no result. Exit code 0 with a result says that "+
			"the job is done.",
			"it exited with 0 and a result when it was stopped, although it was not done; evicted and undisturbed, %s", what)
		return
	}
	f.add("result-differs", Problem, "The checkpoint lacks something that the result depends on, or it is made before the work that it "+
		"stands for is done. Save only what is complete, and all of it: counters, random state, files.",
		"evicted and undisturbed runs differ: %s", what)
	f.scratchState(seen)
}

// endedHalfDone reports whether the program took a stop for its end. A program that was
// stopped before and went on, that reported nearly all of its work as done, or that had
// worked nearly as long as undisturbed, has not: its result differs for another reason.
func endedHalfDone(seen observed) bool {
	const nearly = 0.9
	job, last := seen.evicted, lastRun(seen.evicted)
	if last.Strike == nil || !exitedWithZero(last) || last.Reports > 0 && last.Fraction >= nearly {
		return false
	}
	for _, r := range job.Runs[:len(job.Runs)-1] {
		if !r.Stop.IsZero() && r.Exit != "" && !r.Killed && !exitedWithZero(r) && !strings.Contains(r.Exit, "signal") {
			return false
		}
	}
	return job.worked() < time.Duration(nearly*float64(seen.usual()))
}

// worked is the time of the runs up to their last checkpoints, and of the last run: a program
// that was stopped and has worked as long as undisturbed had come to its end.
func (c *course) worked() (all time.Duration) {
	for _, r := range c.Runs[:len(c.Runs)-1] {
		if at := r.kept(); !at.IsZero() {
			all += at.Sub(r.Started)
		}
	}
	return all + lastRun(c).took()
}

// failureOf is why a job failed: the reason in its record without the worker's count of
// failures, which a trial sets to one. Of a long one the end is kept, where a program says
// what happened.
func failureOf(c *course) string {
	const most = 300
	reason := c.Reason
	if _, last, ok := strings.Cut(reason, "the last: "); ok {
		reason = last
	}
	if what, stderr, ok := strings.Cut(reason, "; the end of its standard error: "); ok {
		if len(stderr) > most {
			stderr = "…" + strings.ToValidUTF8(stderr[len(stderr)-most:], "")
		}
		reason = what + "; the end of its standard error: " + stderr
	}
	return reason
}

func exitedWithZero(r *programRun) bool { return r.Exit == "exited with code 0" }

// scratchState names the files that a program had in its own folders when it was struck,
// without its unfinished checkpoint.
func (f *findings) scratchState(seen observed) {
	f.outsideState(seen.evicted)
	gone, used := map[string]int64{}, map[string]bool{}
	for _, c := range seen.courses() {
		for _, r := range c.Runs {
			maps.Copy(used, r.Used)
		}
	}
	for _, r := range seen.evicted.Runs {
		if r.Strike != nil {
			maps.Copy(gone, r.Files)
		}
	}
	if observesFiles { // a log is not the reason
		maps.DeleteFunc(gone, func(name string, _ int64) bool { return !used[name] })
	}
	if len(gone) == 0 || f.has("scratch-state") {
		return
	}
	f.add("scratch-state", Problem, "The job's folder is gone after an eviction, on Azure with its VM. What the next run needs goes into "+
		"the checkpoint: a folder may be one.",
		"it kept files in its own folder, which the next run did not have: %s", listFiles(gone))
}

// outsideState names the files of a job outside of its folder, which later runs did not have
// on another VM, and had on the same.
func (f *findings) outsideState(job *course) {
	files := map[string]int64{}
	for _, r := range job.Runs {
		maps.Copy(files, r.Outside)
	}
	if len(files) > 0 {
		f.once("outside-state", Problem, "Another VM has none of these files, and the next job on the same VM finds them. Keep what a job needs "+
			"in its folder (HOME, TMPDIR) and its checkpoint.",
			"it wrote files outside of the job's folder: %s", listFiles(files))
	}
}

// listFiles names the largest files.
func listFiles(files map[string]int64) string {
	const most = 4
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		if files[a] != files[b] {
			return int(files[b] - files[a])
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names[:min(most, len(names))] {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, text.Size(files[name])))
	}
	if more := len(names) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// beganAgain reports whether the last run seems to have done all the work, although
// earlier ones had saved a good part: it saved as often as an undisturbed run, or if the
// program saves seldom it took as long.
func beganAgain(seen observed) bool {
	job, plain, last := seen.evicted, seen.plain[0], lastRun(seen.evicted)
	var saved time.Duration
	var saves int
	for _, r := range job.Runs[:len(job.Runs)-1] {
		if at := r.kept(); !at.IsZero() {
			saved += at.Sub(r.Started)
		}
		saves += len(r.Saves)
	}
	if all := len(plain.saves()); all >= growthSaves {
		return saves*5 > all && len(last.Saves)*20 >= all*19 && last.took() > seen.usual()*6/10
	}
	longest := max(plain.took(), seen.plain[len(seen.plain)-1].took())
	return saved > longest/2 && last.took() > longest*19/20
}

// ofStops is about the ends of runs that were asked to stop.
func (f *findings) ofStops(c Config, job *course) {
	for _, r := range job.Runs {
		if r.Stop.IsZero() || r.Ended.IsZero() || r.Strike == nil || r.Exit == "" {
			continue
		}
		took := r.Ended.Sub(r.Stop)
		late := took > c.Grace || r.Killed // a kill after the grace may be some milliseconds early
		switch {
		case late && savesAtStop(r, c.Grace):
			f.once("late-save", Problem, "Save in less time: save during the run, so that little is left for the end, or a smaller state. What "+
				"is not in place in time is lost.",
				"it took %s to save after SIGTERM, of %s that an eviction leaves it%s", text.Duration(took), text.Duration(c.Grace), killedText(r))
		case late:
			f.once("ignores-stop", Warning, "End when SIGTERM comes or the stop file appears, with exit code 75: until then the job cannot "+
				"continue elsewhere.",
				"it did not end within %s after SIGTERM%s", text.Duration(c.Grace), killedText(r))
		case exitedWithZero(r) && (r != lastRun(job) || !job.Done):
			f.once("exit-0", Warning, "Exit with 75 when SIGTERM comes before the end. Here the worker knew of the stop; where SIGTERM reaches "+
				"the program first, exit code 0 means that the job is done.",
				"it exited with 0 when it was stopped, although it was not done")
		}
	}
}

func (f *findings) once(name string, s Severity, advice, what string, args ...any) {
	if !f.has(name) {
		f.add(name, s, advice, what, args...)
	}
}

// savesAtStop reports whether a run was writing its checkpoint after SIGTERM and had none
// in place within the grace. A program that continues to save as usual ignores
// SIGTERM.
func savesAtStop(r *programRun, grace time.Duration) bool {
	writing := !r.Saving.IsZero()
	for _, s := range r.Saves {
		if s.Placed.After(r.Stop) {
			if s.Placed.Sub(r.Stop) <= grace {
				return false
			}
			writing = true
		}
	}
	return writing
}

func killedText(r *programRun) string {
	if r.Killed {
		return ", and was killed (SIGKILL)"
	}
	return ""
}

// ofSaving is about the content and time of saves.
func (f *findings) ofSaving(seen observed) {
	job, plain := seen.evicted, seen.plain[0]
	switch {
	case len(job.saves()) > 0 || seen.wasTooLate() || seen.usual() < tooShort:
	case seen.skipsOutputs():
		f.add("outputs-only", Warning, `Save a checkpoint too, or give the kind "outputs": {"stream": true}: without either a VM that dies `+
			"without a notice costs everything since the last stop.",
			"it saves no checkpoint; after a stop it skips the outputs that are there")
		return
	default:
		f.add("saves-nothing", Problem, "From time to time write the state to a file in TMPDIR and rename it to SPOTWORKER_CHECKPOINT; at the "+
			"start load SPOTWORKER_RESTORE if it is set. In Python the helper in the folder python does both.",
			"it never put a checkpoint in place: after every eviction it starts from the beginning, and what it has done until then is lost")
		f.scratchState(seen)
		return
	}
	if len(plain.saves()) == 0 && len(job.saves()) > 0 {
		f.add("saves-at-stop-only", Warning, "Save during the run too: a VM that dies without a notice costs everything since the start.",
			"it saves only when it is stopped")
	}
	f.ofSizes(seen)
}

// skipsOutputs reports whether the program continued from the outputs of an earlier run: it
// had some, and made none of them again.
func (o observed) skipsOutputs() bool {
	job := o.evicted
	had := false // an earlier run had outputs
	for i, r := range job.Runs {
		had = had || len(r.Outputs) > 0 && i < len(job.Runs)-1
		for _, times := range r.Outputs {
			if times > 1 {
				return false
			}
		}
	}
	return job.Done && had && len(lastRun(job).Outputs) > 0
}

const (
	growthSaves = 4        // from so many checkpoints on growth is judged
	growthLeast = 32 << 10 // bytes that are not worth a word
	growthTimes = 3
)

// ofSizes finds checkpoints that grow with every save, by their recorded sizes.
func (f *findings) ofSizes(seen observed) {
	sizes := seen.plain[0].recordedSizes()
	if len(sizes) < growthSaves {
		return
	}
	grown := 0
	for i := range len(sizes) - 1 {
		if sizes[i+1] > sizes[i] {
			grown++
		}
	}
	first, last := sizes[0], sizes[len(sizes)-1]
	if grown*10 < 9*(len(sizes)-1) || last < growthTimes*first || last-first < growthLeast {
		return
	}
	most := max(last, largest(seen.evicted))
	severity, more := Warning, ""
	if most > last+last/2 {
		severity, more = Problem, fmt.Sprintf(", and to %s when it was evicted", text.Size(most))
	}
	f.add("checkpoint-grows", severity, "If that is the output so far, in files that do not change once they are complete, all is well: it "+
		"ends with the job, and only new files are sent. If it is earlier states, keep the latest alone.",
		"its checkpoint grows with every save: from %s to %s%s", text.Size(first), text.Size(last), more)
}

// recordedSizes returns the sizes of the states in the record, in their order.
func (c *course) recordedSizes() (sizes []int64) {
	for _, r := range c.Runs {
		for _, one := range r.Recorded {
			sizes = append(sizes, one.Bytes)
		}
	}
	return sizes
}

// largest returns the size of the largest checkpoint.
func largest(c *course) (size int64) {
	for _, s := range c.saves() {
		size = max(size, s.Size)
	}
	return slices.Max(append(c.recordedSizes(), size))
}

// courses returns all jobs that were observed.
func (o observed) courses() []*course {
	all := slices.Clone(o.plain)
	if o.evicted != nil {
		all = append(all, o.evicted)
	}
	return all
}

func (f *findings) wroteInPlace(c *course, name string) bool {
	return slices.ContainsFunc(c.Runs, func(r *programRun) bool { return r.InPlace[name] })
}

// ofFiles is about how checkpoints and results get to their places.
func (f *findings) ofFiles(seen observed) {
	const rename = "Write it under another name in TMPDIR, close it, and rename it (mv, os.replace) when it is complete. cp is no rename."
	for _, c := range seen.courses() {
		if f.wroteInPlace(c, checkpointName) {
			f.once("checkpoint-in-place", Problem, rename,
				"it writes its checkpoint in place: the worker may collect half of it at any moment, which the next run then resumes from")
		}
		if f.wroteInPlace(c, resultName) {
			f.once("result-in-place", Problem, rename,
				"it writes its result in place: if it is stopped before it is complete, half a result counts as the result")
		}
		if slices.ContainsFunc(c.Runs, func(r *programRun) bool { return r.Changed && !r.InPlace[checkpointName] }) {
			f.once("checkpoint-changed", Problem, "Never write to a checkpoint after the rename: close all its files before.",
				"it continued to write to a checkpoint after it was put in place")
		}
	}
}

// ofProcesses is about processes that leave the program.
func (f *findings) ofProcesses(seen observed) {
	const wait = "Wait for all that was started before the end, and start it without setsid, nohup or a daemon: the processes of a job get " +
		"SIGTERM as one group."
	strayed := map[string]bool{}
	for _, c := range seen.courses() {
		for _, r := range c.Runs {
			if c.Done && c.took() < tooShort && (r.Left > 0 || len(r.Outlive) > 0) {
				f.once("daemon", Problem, wait, "it ended after %s and left its work to other processes, so the job was done before the work",
					text.Duration(c.took()))
			}
			for _, p := range r.Outlive {
				f.once("left-behind", Problem, wait, "a process that it started lives on after the job: %s", p.Command)
			}
			for _, p := range r.Strays {
				strayed[p.Command] = true
			}
		}
	}
	if len(strayed) > 0 && !f.has("left-behind") {
		f.add("left-group", Warning, wait, "a process that it started left its process group: it gets no SIGTERM, and is killed when the "+
			"program has ended: %s", slices.Sorted(maps.Keys(strayed))[0])
	}
}

// resultAdvice and outsideAdvice say what to do, for programs that are not frozen and that are.
var (
	resultAdvice = map[bool]string{
		false: "Write what the job has found, or a hash of its output, to SPOTWORKER_RESULT, or files to SPOTWORKER_OUTPUT: then an " +
			"evicted run can be compared. If its effects are elsewhere, check them, and try it with --compare none.",
		true: "Have it write files in its working directory, as in: lab try --snapshot sh -c './program >out'. Then an evicted run can be " +
			"compared. If its effects are elsewhere, check them, and try it with --compare none.",
	}
	outsideAdvice = map[bool]string{
		false: "Try it as root on Linux, too.",
		true:  "Keep its files in its working directory: files elsewhere are no part of a snapshot.",
	}
)

// ofTrial is about questions that the trial could not answer.
func (f *findings) ofTrial(c Config, seen observed) {
	if seen.overdue != "" {
		f.add("out-of-time", Problem, "Give the program less to do, or --timeout a longer time.", "%s", seen.overdue)
	}
	if len(seen.plain) == 0 || !seen.plain[0].Done {
		return
	}
	plain, job := seen.plain[0], seen.evicted
	f.ofCount(c, seen)
	if c.Compare != CompareNothing && len(plain.Result) == 0 && len(plain.Outputs) == 0 {
		f.add("no-result", Problem, resultAdvice[seen.snapshot], "it has neither a result nor outputs, so that nothing was compared")
	}
	if job != nil && observesFiles && !seen.snapshot && seen.usual() >= tooShort && plain.Runs[0].Reports == 0 {
		f.add("no-progress", Remark,
			`Append lines such as {"fraction": 0.5} to SPOTWORKER_PROGRESS: spotctl shows them, and max_silence can end a program that hangs.`,
			"it reports no progress")
	}
	f.ofObservation(seen)
	if seen.outsideUnknown != "" {
		f.add("outside-not-checked", Remark, outsideAdvice[seen.snapshot],
			"whether it keeps state outside of the job's folder was not checked: %s", seen.outsideUnknown)
	}
}

// ofCount is about how often the program could be evicted.
func (f *findings) ofCount(c Config, seen observed) {
	switch usual, job := seen.usual(), seen.evicted; {
	case usual < tooShort:
		f.add("too-short", Remark, "Give it more to do to see more. A job this short need not save anything: that it may run twice is enough.",
			"it takes %s, which is too short to be evicted in the middle again and again", text.Duration(usual))
	case job != nil && seen.wasTooLate():
		f.add("not-evicted", Problem, "Give it more to do, or --every a shorter time.",
			"it was done before its first eviction took effect, so that nothing is known")
	case job != nil && job.Done && strikes(job) < c.Evictions:
		f.add("few-evictions", Remark, "Give it more to do, or --every a shorter time.",
			"it was done after %s of %d", text.Plural(strikes(job), "eviction"), c.Evictions)
	}
}

// ofObservation is about events that could not be observed.
func (f *findings) ofObservation(seen observed) {
	if !observesFiles {
		f.add("not-observed", Remark, "Try it on Linux, too.", "this system does not tell how files are written and which processes are "+
			"started: nothing was found out about that")
	}
	for _, c := range seen.courses() {
		if c.Unusual != "" {
			f.once("not-observed", Remark, "Give it less to do at once.", "%s", c.Unusual)
		}
	}
}

// strikes counts the evictions of a job.
func strikes(c *course) (n int) {
	for _, r := range c.Runs {
		if r.Strike != nil {
			n++
		}
	}
	return n
}

// wasTooLate reports whether the job was done before an eviction took effect.
func (o observed) wasTooLate() bool { return strikes(o.evicted) == 0 || o.cameTooLate() }

// cameTooLate reports whether the only eviction came when the program had come to its end: it
// exited with 0, and with the result of an undisturbed run.
func (o observed) cameTooLate() bool {
	job := o.evicted
	return len(job.Runs) == 1 && job.Done && exitedWithZero(job.Runs[0]) && bytes.Equal(job.Result, o.plain[0].Result)
}

// show is the beginning of a result.
func show(result []byte) string {
	const most = 60
	if len(result) == 0 {
		return "empty"
	}
	if len(result) > most {
		return fmt.Sprintf("%q… (%s)", result[:most], text.Size(int64(len(result))))
	}
	return fmt.Sprintf("%q", result)
}
