package demo

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
)

const ms = time.Millisecond

// wrote adds a write that follows the last one of the job.
func (h *history) wrote(job string, w oracle.Write) {
	w.Generation, w.Number, w.After = 1, 1, fmt.Sprint(len(h.writes(job))+1)
	if earlier := h.writes(job); len(earlier) > 0 {
		last := earlier[len(earlier)-1]
		w.Before, w.Generation = last.After, last.Generation+1
		if w.Token == last.Token {
			w.Generation, w.Number = last.Generation, last.Number+1
		}
	}
	h.AddWrite(job, w)
}

// saved adds a write with a state up to an offset.
func (h *history) saved(job, vm, token, status string, offset int64, from, to time.Duration) {
	h.wrote(job, oracle.Write{VM: vm, Status: status, Token: token, Progress: offset, At: at(to), Took: to - from})
}

// became adds a write of a status without a state.
func (h *history) became(job, vm, token, status string, when time.Duration) {
	h.wrote(job, oracle.Write{VM: vm, Status: status, Token: token, Progress: -1, At: at(when)})
}

// hold adds the time in which a worker held a message.
func (h *history) hold(message, vm string, from, to time.Duration) {
	h.Holds = append(h.Holds, &stage.Hold{VM: vm, Message: message, From: at(from), To: at(to)})
}

// deleted adds the deletion of a message that a worker held.
func (h *history) deleted(message, vm string, from, when time.Duration) {
	h.hold(message, vm, from, when)
	h.AddDeletion(message, at(when))
}

// goodRun is a run of four jobs in which every promise was kept. spot_1 was killed
// while it worked on job a, spot_2 evicted with job b, spot_4 frozen with job c;
// spot_3 did the rest. Job d was put twice. Job e has no blob.
func goodRun() (*history, endState) {
	h := newHistory()
	end := endState{Results: map[string][]byte{}, Waiting: map[string]bool{"e": true}}
	for job, size := range map[string]int64{"a": 12, "b": 8, "c": 12, "d": 4} {
		h.files["f"+job] = lab.File{Blob: "f" + job, Size: size, SHA256: job + job}
		end.Results[job] = fmt.Appendf(nil, `{"algorithm":"sha256","digest":"%s","bytes":%d}`, job+job, size)
	}
	for _, job := range []string{"a", "b", "c", "d", "e"} {
		h.Jobs[job], h.blobs[job] = &oracle.Job{Put: at(0), Healthy: true}, "f"+job
		h.AddMessage("m"+job, job)
	}
	h.AddMessage("md2", "d")
	h.bad = []badMessage{{label: "no blob", job: "e", reason: "missing"}, {label: "plain text", text: "hello", reason: "no envelope"}}
	end.Poison = []poisonMessage{{ID: "e", Reason: "blob is missing"}, {Body: "hello", Reason: "no envelope of ours"}}

	h.fates["spot_1"] = fate{kind: killed, at: at(5 * second), gone: at(5 * second)}
	h.fates["spot_2"] = fate{kind: evicted, at: at(6 * second), served: at(6500 * ms), gone: at(6700 * ms)}
	h.fates["spot_4"] = fate{kind: frozen, at: at(5 * second), thawed: at(32 * second)}
	h.drains["spot_2"] = drain{stopped: at(6510 * ms), ended: at(6600 * ms), sinceNotice: "90ms"}

	h.starts = []start{
		{"a", "ma", "spot_1", 0, at(1100 * ms)}, {"b", "mb", "spot_2", 0, at(1100 * ms)}, {"c", "mc", "spot_4", 0, at(1100 * ms)},
		{"d", "md", "spot_3", 0, at(1100 * ms)}, {"d", "md2", "spot_5", 0, at(1200 * ms)}, {"e", "me", "spot_3", 0, at(1100 * ms)},
	}
	h.ranges = []hashedRange{
		{"a", "spot_1", 0, 4, at(2 * second)}, {"b", "spot_2", 0, 4, at(2 * second)}, {"c", "spot_4", 0, 4, at(2 * second)},
		{"d", "spot_3", 0, 4, at(2 * second)}, {"d", "spot_5", 0, 4, at(2 * second)},
		{"a", "spot_1", 4, 4, at(4 * second)}, {"c", "spot_4", 4, 4, at(4 * second)},
	}
	h.saved("a", "spot_1", "a1", oracle.Running, 4, 3*second, 3010*ms)
	h.saved("c", "spot_4", "c1", oracle.Running, 4, 3*second, 3005*ms)
	h.became("e", "spot_3", "e1", oracle.Poison, 2*second)
	h.became("d", "spot_3", "d1", oracle.Done, 2500*ms)
	h.deleted("me", "spot_3", second, 2100*ms)
	h.deleted("md", "spot_3", second, 2600*ms)
	h.ends = []deliveryEnd{
		{job: "e", message: "me", vm: "spot_3", kind: poisoned, at: at(2100 * ms)},
		{job: "d", message: "md2", vm: "spot_5", kind: superfluous, at: at(3 * second)},
	}
	h.deleted("md2", "spot_5", second, 3*second)

	// spot_2 saves and releases b, spot_3 resumes it.
	h.saved("b", "spot_2", "b1", oracle.Open, 4, 6520*ms, 6530*ms)
	h.hold("mb", "spot_2", second, 6550*ms)
	h.starts = append(h.starts, start{"b", "mb", "spot_3", 0.5, at(7100 * ms)})
	h.ranges = append(h.ranges, hashedRange{"b", "spot_3", 4, 4, at(8 * second)})
	h.became("b", "spot_3", "b2", oracle.Done, 9*second)
	h.deleted("mb", "spot_3", 7*second, 9100*ms)

	// spot_3 resumes a and c after half a minute.
	h.hold("ma", "spot_1", second, 31*second)
	h.hold("mc", "spot_4", second, 31*second)
	for _, job := range []string{"a", "c"} {
		h.became(job, "spot_3", job+"2", oracle.Running, 31050*ms)
		h.starts = append(h.starts, start{job, "m" + job, "spot_3", 1.0 / 3, at(31100 * ms)})
	}
	h.ranges = append(h.ranges, hashedRange{"a", "spot_3", 4, 4, at(33 * second)}, hashedRange{"a", "spot_3", 8, 4, at(34 * second)})
	h.ranges = append(h.ranges, hashedRange{"c", "spot_3", 4, 4, at(31500 * ms)}, hashedRange{"c", "spot_3", 8, 4, at(34 * second)})

	// spot_4 is thawed in the middle of that, hashes more, and is refused.
	h.ranges = append(h.ranges, hashedRange{"c", "spot_4", 8, 4, at(32010 * ms)})
	h.Refusals = []stage.Refusal{{VM: "spot_4", Job: "c", At: at(32020 * ms)}, {VM: "spot_5", Job: "d", At: at(2900 * ms)}}
	h.ends = append(h.ends, deliveryEnd{job: "c", message: "mc", vm: "spot_4", kind: dropped, at: at(32030 * ms)})
	for _, job := range []string{"a", "c"} {
		h.became(job, "spot_3", job+"2", oracle.Done, 35*second)
		h.deleted("m"+job, "spot_3", 31*second, 35100*ms)
	}
	return h, end
}

func TestAuditOfAGoodRun(t *testing.T) {
	h, end := goodRun()
	got := audit(h, end)
	once := func(d time.Duration) measuredTime { return measuredTime{d, 1, 0} }
	want := findings{
		Jobs: 4, Bytes: 36, Committed: 4, Duplicates: 1, Absorbed: 1,
		BadMessages: []badMessageEnd{{"no blob", true}, {"plain text", true}}, Poison: end.Poison,
		Frozen:    frozenWorkers{VMs: 1, Held: 1, Fenced: 1, Refused: 1, ThawedToFenced: once(30 * ms)},
		Evictions: 1, Kills: 1,
		TwiceAfterKill: redoneBytes{4, 4}, TwiceAfterFreeze: redoneBytes{8, 8}, TwiceByDuplicate: 4,
		OldestUnsaved: second, SlowestSave: 10 * ms, LongestDuplicate: once(1800 * ms),
		AnnouncedToStopped: once(510 * ms), ServedToStopped: once(10 * ms), ServedToReleased: once(50 * ms),
		NoticeToResumed: once(1100 * ms), KillToResumed: once(26100 * ms), FreezeToResumed: once(26100 * ms),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if n := newReport(got, 2*second, "").Broken(); n != 0 {
		t.Errorf("%d promises broken in a good run", n)
	}
}

// TestEveryPromiseCanBreak breaks the good run in one way at a time, and expects
// those rows of the report, and no others, to be broken.
func TestEveryPromiseCanBreak(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*history, *endState)
		want   []string // labels of the rows
	}{
		{"a job is still waiting", func(h *history, end *endState) {
			h.without("a", "done")
			h.Jobs["a"].Deletions = nil
			end.Waiting["a"], end.Messages = true, 1
		}, []string{"jobs committed", "messages left on the queue"}},
		{"a message vanished", func(h *history, _ *endState) {
			h.without("a", "done")
			h.Jobs["a"].Deletions = nil
		}, []string{"jobs committed", "jobs lost"}},
		{"a second commit", func(h *history, _ *endState) {
			h.became("b", "spot_3", "b3", oracle.Done, 40*second)
		}, []string{"jobs committed twice", "stale writes that took effect"}},
		{"an interruption is counted as a failure", func(h *history, _ *endState) {
			h.Jobs["a"].Writes[1].Failures = 1
		}, []string{"failures counted against a job"}},
		{"a wrong digest when it was written", func(h *history, _ *endState) {
			h.Jobs["a"].Writes[2].Wrong = true
		}, []string{"digests that are not the input's"}},
		{"a wrong digest", func(_ *history, end *endState) {
			end.Results["a"] = []byte(`{"algorithm":"sha256","digest":"ab","bytes":12}`)
		}, []string{"digests that are not the input's"}},
		{"the duplicate stays", func(_ *history, end *endState) {
			end.Waiting["d"] = true
		}, []string{"jobs put twice, duplicate absorbed"}},
		{"a foreign message is dropped", func(_ *history, end *endState) { end.Poison = end.Poison[:1] }, []string{"plain text"}},
		{"poison without its reason", func(_ *history, end *endState) { end.Poison[0].Reason = "broken" }, []string{"no blob"}},
		{"a job without a blob is committed", func(h *history, _ *endState) {
			h.became("e", "spot_3", "e1", oracle.Done, 40*second)
		}, []string{"no blob", "stale writes that took effect"}},
		{"a stale owner writes", func(h *history, _ *endState) {
			h.became("c", "spot_4", "c1", oracle.Open, 36*second)
		}, []string{"stale writes that took effect"}},
		{"a frozen worker does not even try", func(h *history, _ *endState) {
			h.Refusals = h.Refusals[1:]
		}, []string{"writes refused to a worker that was frozen"}},
		{"a frozen worker does not stop", func(h *history, _ *endState) {
			h.ends = h.ends[:2]
		}, []string{"taken-over jobs that it stopped", "thawed -> all of them stopped", "hashed twice after a freeze (not saved)"}},
		{"work redone after the notice", func(h *history, _ *endState) {
			h.ranges = append(h.ranges, hashedRange{"b", "spot_3", 0, 4, at(7500 * ms)})
		}, []string{"hashed twice after a notice"}},
		{"saved work redone after the kill", func(h *history, _ *endState) {
			h.ranges = append(h.ranges, hashedRange{"a", "spot_3", 0, 4, at(31500 * ms)})
		}, []string{"hashed twice after a kill (unsaved then)"}},
		{"no save for too long", func(h *history, _ *endState) {
			h.ranges[5].at = at(1900 * ms)
		}, []string{"oldest work unsaved at a kill"}},
		{"a duplicate is worked on for long", func(h *history, _ *endState) {
			h.ends[1].at, h.holdOf("md2", "spot_5").To = at(5*second), at(5*second)
		}, []string{"longest work on a duplicate"}},
		{"the notice was not acted on", func(h *history, _ *endState) {
			delete(h.drains, "spot_2")
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"a message was never released", func(h *history, _ *endState) {
			h.starts = append(h.starts, start{"x", "mx", "spot_2", 0, at(6100 * ms)})
		}, []string{"seen by the VM -> all jobs released"}},
		{"the notice was acted on late", func(h *history, _ *endState) {
			h.drains["spot_2"] = drain{stopped: at(8100 * ms)}
			h.holdOf("mb", "spot_2").To, h.starts[6].at = at(8200*ms), at(8300*ms)
			h.ranges[7].at = at(8400 * ms)
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"no worker resumes the job after the kill", func(h *history, _ *endState) {
			h.starts = slices.DeleteFunc(h.starts, func(s start) bool { return s.job == "a" && s.vm == "spot_3" })
		}, []string{"kill -> all its jobs resumed elsewhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, end := goodRun()
			test.change(h, &end)
			report := newReport(audit(h, end), 2*second, "")
			var got []string
			for _, row := range report.rows {
				if row.Verdict == text.Broken {
					got = append(got, row.Label)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("broken promises = %q, want %q", got, test.want)
			}
			if report.Broken() != len(test.want) {
				t.Errorf("Broken() = %d, want %d", report.Broken(), len(test.want))
			}
		})
	}
}

// without removes the writes of a job that left that status, and its outcome.
func (h *history) without(job, status string) {
	j := h.Jobs[job]
	j.Ended = time.Time{}
	j.Writes = slices.DeleteFunc(j.Writes, func(w oracle.Write) bool { return w.Status == status })
}

// holdOf returns the hold of a message by a worker.
func (h *history) holdOf(message, vm string) *stage.Hold {
	i := slices.IndexFunc(h.Holds, func(held *stage.Hold) bool { return held.Message == message && held.VM == vm })
	return h.Holds[i]
}

func TestOneUnmeasuredEvictionHidesNoOther(t *testing.T) {
	h, end := goodRun()
	h.fates["spot_0"] = fate{kind: evicted, at: at(3 * second)} // never served
	got := audit(h, end)
	if got.ServedToStopped.Known() || got.ServedToReleased.Known() {
		t.Errorf("times are known (%+v, %+v) though one of two evictions was not measured", got.ServedToStopped, got.ServedToReleased)
	}
}
