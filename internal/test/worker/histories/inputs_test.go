package histories

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// plannedInput is the input of a job: a blob with the name of the job, and its version as
// content.
type plannedInput struct {
	changesAt time.Duration // from version 1 to 2; 0 for never
}

// mixInputs gives some jobs an input, which may change while the job runs or waits. Such a
// job is dead-lettered once it has a state or outputs of the input before, and an operator
// replays it from scratch. It has a random source of its own.
func (p *plan) mixInputs() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x1f11e5))}
	p.inputs = map[string]plannedInput{}
	for _, j := range p.jobs {
		if !r.oneIn(4) {
			continue
		}
		in := plannedInput{}
		if r.oneIn(2) {
			in.changesAt = r.between(j.putAt[0], p.ends)
			p.replayOnly(j.id)
		}
		p.inputs[j.id] = in
	}
}

// replayOnly makes operators replay a job that they would purge: if it is dead-lettered
// because its input changed, it has to end as others do.
func (p *plan) replayOnly(id string) {
	for i, a := range p.operatorActions {
		if a.job == id && !p.job(id).alwaysFails {
			p.operatorActions[i].purge = false
		}
	}
}

// inputOf returns the input of a job as its message names it.
func inputOf(id string) []job.Input { return []job.Input{{Container: "data", Blob: id, To: "version"}} }

// storeInputs stores the inputs of all jobs.
func (h *history) storeInputs() {
	if len(h.inputs) == 0 {
		return
	}
	h.folder = h.t.TempDir()
	for _, j := range h.plan.jobs {
		if _, ok := h.inputs[j.id]; ok {
			h.b.PutData(j.id, "1")
		}
	}
}

// cacheInputs gives a worker a cache of its own, which it fills over its link.
func (h *history) cacheInputs(c *worker.Config, vm string, link *rig.Link) {
	if h.folder != "" {
		c.Inputs = h.b.Fetcher(filepath.Join(h.folder, vm), 1<<20, h.b.Account(link))
	}
}

// addInputs names the input of a job in its message.
func (h *history) addInputs(e *queue.Envelope) {
	if _, ok := h.inputs[e.ID]; !ok {
		return
	}
	raw, err := named.Encode(inputOf(e.ID))
	if err != nil {
		h.t.Error(err)
	}
	e.Inputs = raw
}

// readInputs returns the version of a job's input, 0 for a job without. The number of each
// step depends on it, so that work with one version is never taken for work with another.
func (c *chain) readInputs(j *job.Job) (version int, err error) {
	_, has := c.plan.inputs[j.ID]
	text, err := rig.ReadInputs(j)
	if err != nil || !has && text == "" {
		return 0, err
	}
	version, err = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(text, "version="), ";"))
	if err != nil || !has {
		return 0, job.Permanent(fmt.Errorf("the inputs of %s are %q", j.ID, text))
	}
	return version, nil
}

// versionOf returns the version of its input with which a job has ended: one for its outputs
// and its result.
func (h *history) versionOf(j *plannedJob) int {
	in, ok := h.inputs[j.id]
	if !ok {
		return 0
	}
	if in.changesAt == 0 {
		return 1
	}
	if h.storing[j.id] {
		if first, ok := h.b.FilesOf(j.id)[rig.StepFile(0)]; ok && first == numberText(j.numberAfter(2, 0)) {
			return 2
		}
		return 1
	}
	if h.b.Record(j.id).Status == checkpoint.Done && h.resultOf(j) == string(j.result(2)) {
		return 2
	}
	return 1
}

// hasChangedInputs reports whether a job was dead-lettered because its input changed.
func (h *history) hasChangedInputs(id string) bool {
	r := h.b.Record(id)
	return r.Status == checkpoint.Poison && strings.Contains(r.Reason, "inputs changed since")
}

// startOverWithInputs replays such jobs from scratch, as their reason says. It reports
// whether there were any.
func (h *history) startOverWithInputs() (more bool) {
	for _, j := range h.plan.jobs {
		if !h.recorder.IsDeadLettered(j.id) || !h.hasChangedInputs(j.id) {
			continue
		}
		more = true
		tool := h.operatorTool(operatorAction{job: j.id})
		err := tool.Replay(h.t.Context(), operate.Selection{Names: []string{j.id}}, true, func(o operate.Outcome) error {
			if o.Action == operate.Replayed {
				h.count(&h.startedOver)
			}
			return o.Err
		})
		if err != nil {
			h.t.Errorf("replay %s from scratch: %v", j.id, err)
		}
	}
	return more
}
