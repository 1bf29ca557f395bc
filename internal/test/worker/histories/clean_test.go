package histories

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
)

// planCleaning lets an operator clean after some histories. It has a random source of its
// own.
func (p *plan) planCleaning() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xc1ea))}
	p.cleans = r.oneIn(4)
}

// clean removes the blobs of jobs that have ended, more than a week after the last of
// them, as an operator does: the first is killed, and the next repeats the command. Then a
// job is put again.
func (h *history) clean() {
	if !h.cleans {
		return
	}
	h.stopFinalWorkers() // a week of empty claims would take most of the test's time
	if h.lastingWorker != nil {
		h.recorder.Exclude(lastingVM)
		h.lastingWorker.Stop()
	}
	left := map[string]bool{}
	var again *plannedJob
	for _, j := range h.plan.jobs {
		status := h.b.Record(j.id).Status
		left[j.id] = status == checkpoint.Poison
		if status == checkpoint.Done && j.kind != "other" && again == nil {
			again = j
		}
	}
	time.Sleep(operate.MinCleanAge + time.Hour)
	r := &random{rand.New(rand.NewPCG(h.seed, 0xc1ea2))}
	h.cleanOnce(1+r.IntN(40), rig.CrashPoint(1+r.IntN(3)))
	h.cleanOnce(0, 0)
	h.checkCleaned(left)
	if again != nil {
		h.runAgain(again)
	}
}

// cleanOnce removes old jobs. The operator's program is killed at a call, unless that is 0.
func (h *history) cleanOnce(crashCall int, crash rig.CrashPoint) {
	s := h.b.Connect(h.operatorLink(crashCall, crash))
	h.jobsOf(s)
	c := &operate.Cleaner{Records: s.Records, Logs: s.Logs, Outputs: s.Outputs, Queues: s.JobQueues, Poison: s.Poison,
		OlderThan: operate.MinCleanAge}
	report, err := c.Clean(h.t.Context(), nil, nil)
	if crashCall == 0 && (err != nil || report.Failed > 0) {
		h.t.Errorf("Clean = %+v, %v, want no failures", report, err)
	}
	h.count(&h.cleanings)
}

// checkCleaned checks that records, logs and outputs are left of dead-lettered jobs alone.
func (h *history) checkCleaned(left map[string]bool) {
	for container, prefix := range map[string]string{h.b.Names.Records: "", h.b.Names.Outputs: "", h.b.Names.Payloads: joblog.Prefix} {
		for _, blob := range h.b.Server.Blobs(container) {
			name, matches := strings.CutPrefix(blob.Name, prefix)
			if !matches || strings.Count(name, "/") == 0 {
				continue
			}
			if id, _, _ := strings.Cut(strings.Split(name, "/")[1], ","); !left[id] {
				h.t.Errorf("%s/%s is left after clean", container, blob.Name)
			}
		}
	}
}

// runAgain puts a job whose record is gone. It runs as if for the first time.
func (h *history) runAgain(j *plannedJob) {
	h.startFinalWorkers()
	h.put(j)
	time.Sleep(time.Second)
	h.b.WaitFor("no message left", maxCatchUp, func() bool { return h.b.MessagesLeft() == 0 })
	version := 0
	if in, ok := h.inputs[j.id]; ok {
		version = 1
		if in.changesAt > 0 {
			version = 2
		}
	}
	if got := h.resultOf(j); got != string(j.result(version)) {
		h.t.Errorf("result of job %s, which was put again after clean, = %q, want %q", j.id, got, j.result(version))
	}
	if h.versions[j.id] = version; h.storing[j.id] {
		h.b.CheckOutputs(h.t, h.b.Record(j.id), *h.recorder.ExpectedOf(j.id))
	}
}
