package replay

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestReportOfRealRuns: if real processes did what the replay in virtual time says, the report is the
// same. The plan has the lives and jobs of the replay.
func TestReportOfRealRuns(t *testing.T) {
	for name, change := range map[string]func(*Scenario){
		"default":     func(*Scenario) {},
		"many jobs":   func(s *Scenario) { s.Work.Jobs, s.Fleet.Slots = 300, 3 },
		"no notice":   func(s *Scenario) { s.Fleet.Full, s.Fleet.Rate, s.Work.Save.Duration = 0, 5, time.Second },
		"short":       func(s *Scenario) { s.Fleet.Full, s.Fleet.Short, s.Work.Save.Duration = 0, 1, time.Second },
		"not noticed": func(s *Scenario) { s.Policy.Deaf, s.Fleet.Rate = true, 2 },
		"recorded": func(s *Scenario) {
			s.Fleet.Lives, s.Fleet.VMs, s.For.Duration, s.Fleet.Shorten = "aws-p3", 0, time.Hour, 10
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := replayed(t, change)
			plan, err := Draw(want.Scenario)
			if err != nil {
				t.Fatal(err)
			}
			vms := plan.VMs
			if want.Scenario.Policy.Deaf {
				for i := range vms {
					vms[i].Seen = vms[i].End
				}
			}
			var runs []RealRun
			for _, a := range want.Picture.attempts {
				saved := a.end == Released && a.saves > len(a.marks)
				runs = append(runs, RealRun{
					Job: a.job, Lane: a.lane, From: a.from, Works: a.works, To: a.to, End: a.end, Saves: a.marks, SavedAtRelease: saved,
					Saving: a.saving, Kept: a.kept, Redone: a.redone, Lost: a.lost, Visible: a.visible,
				})
			}
			got := plan.Report(vms, runs, want.Calls)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Losses{}), cmpopts.IgnoreFields(Report{}, "Picture", "Saves"),
				cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("report (-virtual +real):\n%s", diff)
			}
		})
	}
}

// TestShortenedLives: shortened lives are lives with as many times the evictions, recorded ones end
// as many times earlier, and notices keep their length.
func TestShortenedLives(t *testing.T) {
	for _, lives := range []string{Poisson, Constant, Bursts} {
		often := replayed(t, func(s *Scenario) { s.Fleet.Lives, s.Fleet.Rate = lives, 2 })
		short := replayed(t, func(s *Scenario) { s.Fleet.Lives, s.Fleet.Rate, s.Fleet.Shorten = lives, 0.1, 20 })
		if often.VMs != short.VMs || math.Abs(often.Hours.Goodput()-short.Hours.Goodput()) > 0.01 {
			t.Errorf("%s: %d VMs and goodput %.3f %%, shortened %d and %.3f %%", lives, often.VMs, often.Hours.Goodput(), short.VMs,
				short.Hours.Goodput())
		}
	}
	for _, lives := range Recorded {
		drawn := func(shorten float64, long time.Duration) []VM {
			s := Default()
			s.Fleet.Lives, s.Fleet.Shorten, s.Fleet.Full, s.For.Duration = lives, shorten, 1, long
			p, err := Draw(s)
			if err != nil {
				t.Fatal(err)
			}
			return p.VMs
		}
		whole, short := drawn(1, 10*time.Hour), drawn(10, time.Hour)
		if len(whole) != len(short) {
			t.Fatalf("%s: %d VMs, shortened %d", lives, len(whole), len(short))
		}
		for i, v := range short {
			if want := whole[i].End / 10; v.End-want > time.Second || want-v.End > time.Second {
				t.Fatalf("%s: VM %d ends at %s, want %s", lives, i, v.End, want)
			}
			if v.End > 30*time.Second && v.End-v.Told != fullNotice {
				t.Fatalf("%s: VM %d has a notice of %s", lives, i, v.End-v.Told)
			}
		}
	}
	s := Default()
	for shorten, want := range map[float64]bool{0.5: false, 1: true, 10_000: true, 10_001: false, math.NaN(): false} {
		if s.Fleet.Shorten = shorten; (s.Validate() == nil) != want {
			t.Errorf("shortened by %g: %v", shorten, s.Validate())
		}
	}
	if s.Fleet.Shorten, s.Fleet.Rate = 1000, 4; s.Validate() == nil {
		t.Error("lives of less than a second are accepted")
	}
}
