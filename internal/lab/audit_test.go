package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// saves and ends make writes of a record: a state up to an offset, and a status
// without one.
func saves(job, vm, token string, offset int64, from, to time.Duration) write {
	return write{job: job, vm: vm, status: "running", token: token, offset: offset, began: at(from), ended: at(to)}
}

func ends(job, vm, token, status string, when time.Duration) write {
	return write{job: job, vm: vm, status: status, token: token, offset: -1, began: at(when), ended: at(when)}
}

// goodRun is a run of four jobs in which every promise was kept. spot_1 was
// killed with job a in hand, spot_2 evicted with job b, spot_4 frozen with job
// c; spot_3 did the rest. Job d was put twice. Job e has no blob.
func goodRun() (facts, End) {
	f := newFacts()
	end := End{Results: map[string][]byte{}, Waiting: map[string]bool{"e": true}}
	for job, size := range map[string]int64{"a": 12, "b": 8, "c": 12, "d": 4} {
		f.files["f"+job] = File{Blob: "f" + job, Size: size, SHA256: job + job}
		end.Results[job] = fmt.Appendf(nil, `{"algorithm":"sha256","digest":"%s","bytes":%d}`, job+job, size)
	}
	for _, job := range []string{"a", "b", "c", "d", "e"} {
		f.jobs[job], f.owners[job] = jobFact{job, "f" + job}, []string{"m" + job}
	}
	f.owners["d"] = append(f.owners["d"], "md2")
	f.odd = []Odd{{Label: "no blob", Job: "e", Reason: "missing"}, {Label: "plain text", Text: "hello", Reason: "no envelope"}}
	end.Poison = []poisonFact{{ID: "e", Reason: "blob is missing"}, {Body: "hello", Reason: "no envelope of ours"}}

	f.fates["spot_1"] = fate{kind: killed, at: at(5 * second), gone: true}
	f.fates["spot_2"] = fate{kind: evicted, at: at(6 * second), served: at(6500 * ms), gone: true}
	f.fates["spot_4"] = fate{kind: frozen, at: at(5 * second), thawed: at(32 * second)}
	f.halts["spot_2"] = halt{stopped: at(6510 * ms), drained: at(6600 * ms), sinceNotice: "90ms"}

	for _, message := range []string{"ma", "mb", "mc", "md", "md2", "me"} {
		f.moves = append(f.moves, move{message, handedOut, at(1 * second)})
	}
	f.starts = []start{
		{"a", "ma", "spot_1", 0, at(1100 * ms)}, {"b", "mb", "spot_2", 0, at(1100 * ms)}, {"c", "mc", "spot_4", 0, at(1100 * ms)},
		{"d", "md", "spot_3", 0, at(1100 * ms)}, {"d", "md2", "spot_5", 0, at(1200 * ms)}, {"e", "me", "spot_3", 0, at(1100 * ms)},
	}
	f.spans = []span{
		{"a", "spot_1", 0, 4, at(2 * second)}, {"b", "spot_2", 0, 4, at(2 * second)}, {"c", "spot_4", 0, 4, at(2 * second)},
		{"d", "spot_3", 0, 4, at(2 * second)}, {"d", "spot_5", 0, 4, at(2 * second)},
		{"a", "spot_1", 4, 4, at(4 * second)}, {"c", "spot_4", 4, 4, at(4 * second)},
	}
	f.writes = []write{
		saves("a", "spot_1", "a1", 4, 3*second, 3010*ms),
		saves("c", "spot_4", "c1", 4, 3*second, 3005*ms),
		ends("e", "spot_3", "e1", "poison", 2*second),
		ends("d", "spot_3", "d1", "done", 2500*ms),
	}
	f.moves = append(f.moves, move{"me", deleted, at(2100 * ms)}, move{"md", deleted, at(2600 * ms)})
	f.closings = []closing{
		{job: "e", message: "me", vm: "spot_3", kind: poisoned, at: at(2100 * ms)},
		{job: "d", message: "md2", vm: "spot_5", kind: overdone, at: at(3 * second)},
	}
	f.moves = append(f.moves, move{"md2", deleted, at(3 * second)})

	// spot_2 saves and releases b, spot_3 goes on with it.
	f.writes = append(f.writes, write{job: "b", vm: "spot_2", status: "open", token: "b1", offset: 4, began: at(6520 * ms), ended: at(6530 * ms)})
	f.moves = append(f.moves, move{"mb", released, at(6550 * ms)}, move{"mb", handedOut, at(7 * second)})
	f.starts = append(f.starts, start{"b", "mb", "spot_3", 0.5, at(7100 * ms)})
	f.spans = append(f.spans, span{"b", "spot_3", 4, 4, at(8 * second)})
	f.writes = append(f.writes, ends("b", "spot_3", "b2", "done", 9*second))
	f.moves = append(f.moves, move{"mb", deleted, at(9100 * ms)})

	// spot_3 goes on with a and c after half a minute.
	for _, job := range []string{"a", "c"} {
		f.moves = append(f.moves, move{"m" + job, handedOut, at(31 * second)})
		f.writes = append(f.writes, ends(job, "spot_3", job+"2", "running", 31050*ms))
		f.starts = append(f.starts, start{job, "m" + job, "spot_3", 1.0 / 3, at(31100 * ms)})
	}
	f.spans = append(f.spans, span{"a", "spot_3", 4, 4, at(33 * second)}, span{"a", "spot_3", 8, 4, at(34 * second)})
	f.spans = append(f.spans, span{"c", "spot_3", 4, 4, at(31500 * ms)}, span{"c", "spot_3", 8, 4, at(34 * second)})

	// spot_4 wakes up in the middle of it, hashes on, and is refused.
	f.spans = append(f.spans, span{"c", "spot_4", 8, 4, at(32010 * ms)})
	f.refusals = []refusal{{job: "c", vm: "spot_4", at: at(32020 * ms)}, {job: "d", at: at(2900 * ms)}}
	f.closings = append(f.closings, closing{job: "c", message: "mc", vm: "spot_4", kind: dropped, at: at(32030 * ms)})
	for _, job := range []string{"a", "c"} {
		f.writes = append(f.writes, ends(job, "spot_3", job+"2", "done", 35*second))
		f.moves = append(f.moves, move{"m" + job, deleted, at(35100 * ms)})
	}
	return f, end
}

func TestAuditOfAGoodRun(t *testing.T) {
	f, end := goodRun()
	got := audit(&f, end)
	once := func(d time.Duration) Measured { return Measured{d, 1, 0} }
	want := Findings{
		Jobs: 4, Bytes: 36, Committed: 4, Duplicates: 1, Absorbed: 1,
		Odd: []OddEnd{{"no blob", true}, {"plain text", true}}, Poison: end.Poison,
		Frozen:    Frozen{VMs: 1, Held: 1, Fenced: 1, Refused: 1, ThawedToFenced: once(30 * ms)},
		Evictions: 1, Kills: 1,
		TwiceAfterKill: Redone{4, 4}, TwiceAfterFreeze: Redone{8, 8}, TwiceByDuplicate: 4,
		OldestUnsaved: second, SlowestSave: 10 * ms, LongestDuplicate: once(1800 * ms),
		AnnouncedToStopped: once(510 * ms), ServedToStopped: once(10 * ms), ServedToReleased: once(50 * ms),
		NoticeToResumed: once(1100 * ms), KillToResumed: once(26100 * ms), FreezeToResumed: once(26100 * ms),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if n := NewReport(got, Settings{Interval: 2 * second}).Broken(); n != 0 {
		t.Errorf("%d promises broken in a good run", n)
	}
}

// TestEveryPromiseCanBreak spoils the good run in one way at a time, and expects
// that row of the report, and no other, to say so.
func TestEveryPromiseCanBreak(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*facts, *End)
		want  []string // labels of the rows
	}{
		{"a job is still waiting", func(f *facts, end *End) {
			f.without("a", "done")
			f.moves = slices.DeleteFunc(f.moves, func(m move) bool { return m.message == "ma" && m.kind == deleted })
			end.Waiting["a"], end.Messages = true, 1
		}, []string{"jobs committed", "messages left on the queue"}},
		{"a message vanished", func(f *facts, _ *End) {
			f.without("a", "done")
			f.moves = slices.DeleteFunc(f.moves, func(m move) bool { return m.message == "ma" && m.kind == deleted })
		}, []string{"jobs committed", "jobs lost"}},
		{"a message was deleted before the commit", func(f *facts, _ *End) {
			f.moves = append(f.moves, move{"ma", deleted, at(33 * second)})
		}, []string{"jobs lost"}},
		{"a second commit", func(f *facts, _ *End) {
			f.writes = append(f.writes, ends("b", "spot_3", "b3", "done", 40*second))
		}, []string{"jobs committed twice"}},
		{"a wrong digest", func(_ *facts, end *End) {
			end.Results["a"] = []byte(`{"algorithm":"sha256","digest":"ab","bytes":12}`)
		}, []string{"digests that are not the input's"}},
		{"a wrong size", func(_ *facts, end *End) {
			end.Results["a"] = []byte(`{"algorithm":"sha256","digest":"aa","bytes":11}`)
		}, []string{"digests that are not the input's"}},
		{"no result", func(_ *facts, end *End) { delete(end.Results, "b") }, []string{"digests that are not the input's"}},
		{"the duplicate stays", func(_ *facts, end *End) {
			end.Waiting["d"] = true
		}, []string{"jobs put twice, duplicate absorbed"}},
		{"a foreign message is dropped", func(_ *facts, end *End) { end.Poison = end.Poison[:1] }, []string{"plain text"}},
		{"poison without its reason", func(_ *facts, end *End) { end.Poison[0].Reason = "broken" }, []string{"no blob"}},
		{"a job without a blob is committed", func(f *facts, _ *End) {
			f.writes = append(f.writes, ends("e", "spot_3", "e1", "done", 40*second))
		}, []string{"no blob"}},
		{"a stale owner writes", func(f *facts, _ *End) {
			f.writes = append(f.writes, ends("c", "spot_4", "c1", "open", 36*second))
		}, []string{"stale writes that took effect"}},
		{"a frozen worker does not even try", func(f *facts, _ *End) {
			f.refusals = f.refusals[1:]
		}, []string{"writes refused to a worker that was frozen"}},
		{"a frozen worker goes on", func(f *facts, _ *End) {
			f.closings = f.closings[:2]
		}, []string{"jobs that it let go, taken over meanwhile", "thawed -> all of them let go", "hashed twice after a freeze (not saved)"}},
		{"a frozen worker goes on for long", func(f *facts, _ *End) {
			f.closings[2].at = at(36 * second)
		}, []string{"thawed -> all of them let go"}},
		{"work redone after the notice", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"b", "spot_3", 0, 4, at(7500 * ms)})
		}, []string{"hashed twice after a notice"}},
		{"saved work redone after the kill", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"a", "spot_3", 0, 4, at(31500 * ms)})
		}, []string{"hashed twice after a kill (unsaved then)"}},
		{"saved work redone after the freeze", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"c", "spot_3", 0, 4, at(31400 * ms)})
		}, []string{"hashed twice after a freeze (not saved)"}},
		{"no save for too long", func(f *facts, _ *End) {
			f.spans[5].at = at(1900 * ms)
		}, []string{"oldest work unsaved at a kill"}},
		{"a duplicate is worked on for long", func(f *facts, _ *End) {
			f.closings[1].at, f.moves[8].at = at(5*second), at(5*second)
		}, []string{"longest work on a duplicate"}},
		{"a worker redoes its own work", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"a", "spot_3", 8, 4, at(34500 * ms)})
		}, []string{"hashed twice without cause"}},
		{"the notice was not acted on", func(f *facts, _ *End) {
			delete(f.halts, "spot_2")
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"the notice was never asked for", func(f *facts, _ *End) {
			f.fates["spot_2"] = fate{kind: evicted, at: at(6 * second)}
			delete(f.halts, "spot_2")
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped", "seen by the VM -> all jobs released"}},
		{"a message was never released", func(f *facts, _ *End) {
			f.starts = append(f.starts, start{"x", "mx", "spot_2", 0, at(6100 * ms)})
		}, []string{"seen by the VM -> all jobs released"}},
		{"the notice was acted on late", func(f *facts, _ *End) {
			f.halts["spot_2"] = halt{stopped: at(8100 * ms)}
			f.moveOf("mb", released).at, f.starts[6].at = at(8200*ms), at(8300*ms)
			f.moveOf("mb", handedOut).at = at(1 * second)
			f.spans[7].at = at(8400 * ms)
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"a message was released late", func(f *facts, _ *End) {
			f.moves = slices.DeleteFunc(f.moves, func(m move) bool { return m.message == "mb" && m.at.Equal(at(7*second)) })
			f.moveOf("mb", released).at, f.moveOf("mb", deleted).at = at(9600*ms), at(9900*ms)
			f.starts[6].at, f.spans[7].at = at(9700*ms), at(9800*ms)
		}, []string{"seen by the VM -> all jobs released"}},
		{"nobody goes on after the kill", func(f *facts, _ *End) {
			f.starts = slices.DeleteFunc(f.starts, func(s start) bool { return s.job == "a" && s.vm == "spot_3" })
		}, []string{"kill -> all its jobs resumed elsewhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, end := goodRun()
			test.spoil(&f, &end)
			report := NewReport(audit(&f, end), Settings{Interval: 2 * second})
			var got []string
			for _, row := range report.rows {
				if row.verdict == broken {
					got = append(got, row.label)
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

// without removes the writes of a job that left that status.
func (f *facts) without(job, status string) {
	f.writes = slices.DeleteFunc(f.writes, func(w write) bool { return w.job == job && w.status == status })
}

// moveOf returns the first move of that kind of a message.
func (f *facts) moveOf(message string, kind moveKind) *move {
	i := slices.IndexFunc(f.moves, func(m move) bool { return m.message == message && m.kind == kind })
	return &f.moves[i]
}

func TestBlindSpotBreaksTheDemo(t *testing.T) {
	f, end := goodRun()
	f.blind = 1
	if n := NewReport(audit(&f, end), Settings{Interval: 2 * second}).Broken(); n != 1 {
		t.Errorf("Broken() with a write that was not seen = %d, want 1", n)
	}
}

func TestOneUnmeasuredEvictionHidesNoOther(t *testing.T) {
	f, end := goodRun()
	f.fates["spot_0"] = fate{kind: evicted, at: at(3 * second)} // never served
	got := audit(&f, end)
	if got.ServedToStopped.Known() || got.ServedToReleased.Known() {
		t.Errorf("times are known (%+v, %+v) though one of two evictions was not measured", got.ServedToStopped, got.ServedToReleased)
	}
}

func TestStaleWrites(t *testing.T) {
	for name, test := range map[string]struct {
		tokens string // of the writes of one job, in their order
		want   int
	}{
		"one claim":                   {"aaa", 0},
		"claims one after another":    {"aabbc", 0},
		"the first once more":         {"aabba", 1},
		"two that fight":              {"abab", 2},
		"the second writes after all": {"abcb", 1},
	} {
		f := newFacts()
		for _, token := range test.tokens {
			f.writes = append(f.writes, write{job: "j", token: string(token)}, write{job: "k", token: "k"})
		}
		if got := f.staleWrites(); got != test.want {
			t.Errorf("%s: %d stale writes in %q, want %d", name, got, test.tokens, test.want)
		}
	}
}

func TestMissingSaysWhere(t *testing.T) {
	f, end := goodRun()
	f.without("a", "done")
	f.without("b", "done")
	end.Waiting["a"] = true
	got := strings.Join(audit(&f, end).Missing, "\n")
	want := "fa: running, last in the hands of spot_3\nfb: lost, there is no message of it"
	if got != want {
		t.Errorf("missing:\n%s\nwant:\n%s", got, want)
	}
}
