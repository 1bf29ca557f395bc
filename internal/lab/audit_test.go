package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// goodRun is a run of two jobs in which every promise was kept: spot_1 was
// killed with job a in hand, spot_2 evicted with job b, and spot_3 did the rest.
func goodRun() (facts, End) {
	f := newFacts()
	f.files["fa"] = File{Blob: "fa", Size: 12, SHA256: "aa"}
	f.files["fb"] = File{Blob: "fb", Size: 8, SHA256: "bb"}
	f.jobs["a"], f.jobs["b"] = jobFact{"a", "fa"}, jobFact{"b", "fb"}
	f.owners["a"], f.owners["b"] = []string{"ma"}, []string{"mb"}
	f.fates["spot_1"] = fate{kind: killed, at: at(5 * second)}
	f.fates["spot_2"] = fate{kind: evicted, at: at(6 * second), served: at(6500 * time.Millisecond)}
	f.halts["spot_2"] = halt{stopped: at(6510 * time.Millisecond), drained: at(6600 * time.Millisecond), sinceNotice: "90ms"}

	f.moves = []move{{"ma", handedOut, at(1 * second)}, {"mb", handedOut, at(1 * second)}}
	f.starts = []start{{"a", "ma", "spot_1", 0, at(1100 * time.Millisecond)}, {"b", "mb", "spot_2", 0, at(1100 * time.Millisecond)}}
	f.spans = []span{
		{"a", "spot_1", 0, 4, at(2 * second)}, {"b", "spot_2", 0, 4, at(2 * second)},
		{"a", "spot_1", 4, 4, at(4 * second)},
	}
	f.writes = []write{
		{"a", "spot_1", "running", 4, at(3 * second), at(3010 * time.Millisecond)},
		{"b", "spot_2", "open", 4, at(6520 * time.Millisecond), at(6530 * time.Millisecond)},
	}
	f.moves = append(f.moves, move{"mb", released, at(6550 * time.Millisecond)}, move{"mb", handedOut, at(7 * second)})
	f.starts = append(f.starts, start{"b", "mb", "spot_3", 0.5, at(7100 * time.Millisecond)})
	f.spans = append(f.spans, span{"b", "spot_3", 4, 4, at(8 * second)})
	f.writes = append(f.writes, write{"b", "spot_3", "done", -1, at(9 * second), at(9 * second)})
	f.moves = append(f.moves, move{"mb", deleted, at(9100 * time.Millisecond)}, move{"ma", handedOut, at(31 * second)})
	f.starts = append(f.starts, start{"a", "ma", "spot_3", 0.33, at(31100 * time.Millisecond)})
	f.spans = append(f.spans, span{"a", "spot_3", 4, 4, at(32 * second)}, span{"a", "spot_3", 8, 4, at(33 * second)})
	f.writes = append(f.writes, write{"a", "spot_3", "done", -1, at(34 * second), at(34 * second)})
	f.moves = append(f.moves, move{"ma", deleted, at(35 * second)})
	return f, End{
		Results: map[string][]byte{
			"a": []byte(`{"algorithm":"sha256","digest":"aa","bytes":12}`),
			"b": []byte(`{"algorithm":"sha256","digest":"bb","bytes":8}`),
		},
		Waiting: map[string]bool{},
	}
}

func TestAuditOfAGoodRun(t *testing.T) {
	f, end := goodRun()
	got := audit(&f, end)
	want := Findings{
		Jobs: 2, Bytes: 20, Committed: 2, Evictions: 1, Kills: 1,
		TwiceAfterKill: 4, UnsavedAtKill: 4, OldestUnsaved: second, SlowestSave: 10 * time.Millisecond,
		AnnouncedToStopped: Measured{510 * time.Millisecond, true},
		ServedToStopped:    Measured{10 * time.Millisecond, true},
		ServedToReleased:   Measured{50 * time.Millisecond, true},
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("findings:\n got %s\nwant %s", g, w)
	}
	if n := NewReport(got, 2*second).Broken(); n != 0 {
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
			f.writes, end.Waiting["a"], end.Messages = f.writes[:3], true, 1
			f.moves = f.moves[:len(f.moves)-1]
		}, []string{"jobs committed", "messages left on the queue"}},
		{"a message vanished", func(f *facts, _ *End) {
			f.writes, f.moves = f.writes[:3], f.moves[:len(f.moves)-1]
		}, []string{"jobs committed", "jobs lost"}},
		{"a message was deleted before the commit", func(f *facts, _ *End) {
			f.moves = append(f.moves, move{"ma", deleted, at(33 * second)})
		}, []string{"jobs lost"}},
		{"a second commit", func(f *facts, _ *End) {
			f.writes = append(f.writes, write{"b", "spot_2", "done", -1, at(40 * second), at(40 * second)})
		}, []string{"jobs committed twice"}},
		{"a wrong digest", func(_ *facts, end *End) {
			end.Results["a"] = []byte(`{"algorithm":"sha256","digest":"ab","bytes":12}`)
		}, []string{"digests that are not the file's"}},
		{"a wrong size", func(_ *facts, end *End) {
			end.Results["a"] = []byte(`{"algorithm":"sha256","digest":"aa","bytes":11}`)
		}, []string{"digests that are not the file's"}},
		{"no result", func(_ *facts, end *End) { delete(end.Results, "b") }, []string{"digests that are not the file's"}},
		{"work redone after the notice", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"b", "spot_3", 0, 4, at(7500 * time.Millisecond)})
		}, []string{"hashed twice after a notice"}},
		{"saved work redone after the kill", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"a", "spot_3", 0, 4, at(31500 * time.Millisecond)})
		}, []string{"hashed twice after a kill (unsaved then)"}},
		{"no save for too long", func(f *facts, _ *End) {
			f.spans[2].at = at(1900 * time.Millisecond)
		}, []string{"oldest work unsaved at a kill"}},
		{"a worker redoes its own work", func(f *facts, _ *End) {
			f.spans = append(f.spans, span{"a", "spot_3", 8, 4, at(33500 * time.Millisecond)})
		}, []string{"hashed twice without cause"}},
		{"the notice was not acted on", func(f *facts, _ *End) {
			delete(f.halts, "spot_2")
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"the notice was never asked for", func(f *facts, _ *End) {
			f.fates["spot_2"] = fate{kind: evicted, at: at(6 * second)}
			delete(f.halts, "spot_2")
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped", "seen by the VM -> all jobs released"}},
		{"a message was never released", func(f *facts, _ *End) {
			f.starts = append(f.starts, start{"c", "mc", "spot_2", 0, at(5 * second)})
		}, []string{"seen by the VM -> all jobs released"}},
		{"the notice was acted on late", func(f *facts, _ *End) {
			f.halts["spot_2"] = halt{stopped: at(8100 * time.Millisecond)}
			f.moves[2].at, f.starts[2].at = at(8200*time.Millisecond), at(8300*time.Millisecond)
			f.moves[3].at = at(8250 * time.Millisecond)
		}, []string{"announced -> work stopped (1 poll)", "seen by the VM -> work stopped"}},
		{"a message was released late", func(f *facts, _ *End) {
			f.moves[2].at, f.moves[3].at, f.starts[2].at = at(9600*time.Millisecond), at(9700*time.Millisecond), at(9800*time.Millisecond)
			f.moves[4].at = at(9900 * time.Millisecond)
		}, []string{"seen by the VM -> all jobs released"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, end := goodRun()
			test.spoil(&f, &end)
			report := NewReport(audit(&f, end), 2*second)
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

func TestBlindSpotBreaksTheDemo(t *testing.T) {
	f, end := goodRun()
	f.blind = 1
	if n := NewReport(audit(&f, end), 2*second).Broken(); n != 1 {
		t.Errorf("Broken() with a write that was not seen = %d, want 1", n)
	}
}

func TestOneUnmeasuredEvictionHidesNoOther(t *testing.T) {
	f, end := goodRun()
	f.fates["spot_0"] = fate{kind: evicted, at: at(3 * second)} // never served
	got := audit(&f, end)
	if got.ServedToStopped.Known || got.ServedToReleased.Known {
		t.Errorf("times are known (%+v, %+v) though one of two evictions was not measured", got.ServedToStopped, got.ServedToReleased)
	}
}

func TestMissingSaysWhere(t *testing.T) {
	f, end := goodRun()
	f.writes = f.writes[:2]
	end.Waiting["a"] = true
	got := strings.Join(audit(&f, end).Missing, "\n")
	want := "fa: running, last in the hands of spot_3\nfb: lost, there is no message of it"
	if got != want {
		t.Errorf("missing:\n%s\nwant:\n%s", got, want)
	}
}
