package deadline

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The assumptions of the simulations.
const (
	spotPrice   = 0.25 // of a Spot VM, where a regular one costs 1
	restoreTime = 30 * time.Second
	saveEvery   = 10 * time.Minute // the most that a VM loses when it dies without notice
	suddenShare = 0.2              // of the losses: they come without notice
	redelivery  = 30 * time.Second // until the message of such a VM is visible again
	searchEvery = 2 * time.Minute  // from one look at the jobs that wait to the next
)

// policy decides about a simulated job.
type policy struct {
	name      string
	onRelease func(Verdict, int) bool // given how often the job was released
	onClaim   func(Verdict) bool
	searches  bool // a worker of regular priority looks at the jobs that wait
}

func never(Verdict) bool { return false }

var (
	spotOnly   = policy{"Spot alone", func(Verdict, int) bool { return false }, never, false}
	afterThree = policy{"--move-after 3", func(_ Verdict, releases int) bool { return releases >= 3 }, never, false}
	noSearch   = policy{"the rule without a search", func(v Verdict, _ int) bool { return v.MovesOnRelease() }, Verdict.MovesOnClaim, false}
	theRule    = policy{"the rule", noSearch.onRelease, noSearch.onClaim, true}
)

// workload is the jobs of a simulation.
type workload struct {
	work     time.Duration
	slack    float64 // the time until the deadline, in times of the work
	estimate float64 // in times of the work; 0 for none
	reports  bool    // the handler reports its fraction
}

// simulated is a job in a simulation. Times count from its first claim.
type simulated struct {
	workload
	policy policy
	random *rand.Rand

	begun, now       time.Duration
	done, ran        time.Duration // work that is recorded, and run time
	claims, releases int
	spot, regular    time.Duration // paid
	moved, over      bool

	waited time.Duration // by the jobs that the VM's worker has claimed
}

func (j *simulated) verdict(losing int) Verdict {
	known := Job{
		Began: noon.Add(j.begun), Now: noon.Add(j.now), Deadline: noon.Add(j.begun + time.Duration(j.slack*float64(j.work))),
		Waited: j.waited, Estimate: time.Duration(j.estimate * float64(j.work)), RunTime: j.ran, HasState: j.done > 0, Losses: j.claims - 1 +
			losing,
	}
	if j.reports {
		known.Fraction = j.done.Seconds() / j.work.Seconds()
	}
	return Judge(known, DefaultChangeover)
}

// search looks at a job that waits, until a Spot VM has a slot for it at that time. It returns
// true if the job moves. A job that was never begun has no deadline here.
func (j *simulated) search(until time.Duration) (moves bool) {
	if !j.policy.searches || j.claims == 0 || j.over {
		return false
	}
	for since, at := j.now, j.now+searchEvery; at < until; at += searchEvery {
		j.now, j.waited = at, at-since
		v := j.verdict(1)
		if v.MovesWaiting() {
			j.move()
			return true
		}
		if j.now = since; v.Risk == Late {
			return false
		}
	}
	return false
}

// claim begins a delivery at now. It returns false if the job moves instead.
func (j *simulated) claim(now time.Duration) bool {
	if j.claims == 0 {
		j.now, j.begun = now, now
	}
	j.claims++
	j.now, j.waited = now, now-j.now
	if j.claims > 1 && j.policy.onClaim(j.verdict(0)) {
		j.move()
		return false
	}
	return true
}

// run runs the job on a Spot VM until it is done or the VM ends after life.
func (j *simulated) run(life time.Duration) {
	restore := restoreTime
	if j.done == 0 {
		restore = 0
	}
	needs := restore + j.work - j.done
	if needs <= life {
		j.spot, j.now, j.over = j.spot+needs, j.now+needs, true
		return
	}
	j.spot, j.now = j.spot+life, j.now+life
	worked := max(life-restore, 0)
	if j.random.Float64() < suddenShare {
		worked = max(worked-time.Duration(j.random.Int64N(int64(saveEvery))), 0)
		j.done, j.ran = j.done+worked, j.ran+worked
		j.now += redelivery
		return
	}
	j.done, j.ran, j.releases = j.done+worked, j.ran+worked, j.releases+1
	if j.policy.onRelease(j.verdict(1), j.releases) {
		j.move()
	}
}

// move finishes the job on a regular VM, after a changeover.
func (j *simulated) move() {
	takes := restoreTime + j.work - j.done
	j.now += time.Duration(j.random.Int64N(int64(DefaultChangeover))) + takes
	j.regular, j.moved, j.over = takes, true, true
}

// tally sums up jobs.
type tally struct {
	jobs, met, moved int
	cost             float64 // in units of the jobs' cost on regular VMs
}

func (t *tally) add(j *simulated) {
	t.jobs++
	if j.now-j.begun <= time.Duration(j.slack*float64(j.work)) {
		t.met++
	}
	if j.moved {
		t.moved++
	}
	t.cost += (j.spot.Seconds()*spotPrice + j.regular.Seconds()) / j.work.Seconds()
}

func (t *tally) share(n int) float64   { return 100 * float64(n) / float64(t.jobs) }
func (t *tally) relativeCost() float64 { return 100 * t.cost / float64(t.jobs) }

// onSingleVMs runs jobs one after another on VMs with the lives of a trace. Another VM is
// found after five minutes on average.
func onSingleVMs(lives []time.Duration, w workload, p policy, jobs int) (sum tally) {
	random := rand.New(rand.NewPCG(1, 2))
	for range jobs {
		j := &simulated{workload: w, policy: p, random: random}
		for wait := time.Duration(0); !j.over && !j.search(j.now+wait) && j.claim(j.now+wait); {
			j.run(lives[random.IntN(len(lives))])
			wait = time.Duration(random.ExpFloat64() * float64(5*time.Minute))
		}
		sum.add(j)
	}
	return sum
}

// change is an instance of a fleet that comes or goes.
type change struct {
	at    time.Duration
	comes bool
	node  string
}

// onFleet runs jobs on a recorded fleet, one on each instance: as many as it has instances
// on average. Losses and scarcity are as recorded. The rounds start at different times;
// the last start leaves room for twice the work. Where jobs need more time than the
// recording has, it repeats.
func onFleet(fleet []change, w workload, p policy, rounds int) (sum tally) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range rounds {
		from := time.Duration(round) * (fleet[len(fleet)-1].at - 2*w.work) / time.Duration(rounds)
		f := &fleetRun{}
		for range average(fleet) {
			f.queue = append(f.queue, &simulated{workload: w, policy: p, random: random, now: -1})
		}
		jobs := slices.Clone(f.queue)
		f.play(fleet, from)
		for _, j := range jobs {
			sum.add(j)
		}
	}
	return sum
}

// average is the average number of instances of a fleet.
func average(fleet []change) int {
	n, sum, last := 0, 0.0, time.Duration(0)
	for _, c := range fleet {
		sum += float64(n) * (c.at - last).Seconds()
		last = c.at
		if n--; c.comes {
			n += 2
		}
	}
	return int(sum/last.Seconds() + .5)
}

// fleetRun is the jobs of one round that wait, in order.
type fleetRun struct{ queue []*simulated }

// slot is an instance that is free from a time on, until it goes.
type slot struct{ from, to time.Duration }

// play hands each instance's time to the jobs that wait, in the order of time, and repeats
// the recording until all jobs are over.
func (f *fleetRun) play(fleet []change, from time.Duration) {
	length := fleet[len(fleet)-1].at
	var free []slot
	for repeat := range 4 {
		shift := time.Duration(repeat) * length
		for i, c := range fleet {
			if !c.comes {
				continue
			}
			s := slot{from: shift + c.at, to: shift + length}
			for _, later := range fleet[i+1:] {
				if later.node == c.node && !later.comes {
					s.to = shift + later.at
					break
				}
			}
			if s.from = max(s.from, from); s.from < s.to {
				free = append(free, s)
			}
		}
	}
	byTime := func(a, b slot) int { return cmp.Compare(a.from, b.from) }
	slices.SortStableFunc(free, byTime)
	add := func(s slot) {
		at, _ := slices.BinarySearchFunc(free, s, byTime)
		free = slices.Insert(free, at, s)
	}
	for len(f.queue) > 0 && len(free) > 0 {
		s := free[0]
		free = free[1:]
		// The job that waits for longest and whose message is visible by then.
		at := slices.IndexFunc(f.queue, func(j *simulated) bool { return j.now <= s.from })
		if at < 0 {
			soonest := slices.MinFunc(f.queue, func(a, b *simulated) int { return cmp.Compare(a.now, b.now) })
			if s.from = soonest.now; s.from < s.to {
				add(s)
			}
			continue
		}
		j := f.queue[at]
		f.queue = slices.Delete(f.queue, at, at+1)
		if j.search(s.from) || !j.claim(s.from) {
			add(s)
			continue
		}
		j.run(s.to - s.from)
		if !j.over {
			f.queue = append(f.queue, j)
		} else if !j.moved && j.now < s.to {
			add(slot{j.now, s.to})
		}
	}
	for _, j := range f.queue {
		j.search(j.now + 100*j.work)
	}
}

// readLives reads the lives of single VMs.
func readLives(tb testing.TB) (lives []time.Duration) {
	forEachLine(tb, "gcp-lives.csv", func(line string) {
		var seconds int
		if _, err := fmt.Sscan(line, &seconds); err != nil {
			tb.Fatal(err)
		}
		lives = append(lives, time.Duration(seconds)*time.Second)
	})
	return lives
}

func readFleet(tb testing.TB, name string) (fleet []change) {
	forEachLine(tb, name, func(line string) {
		var seconds int
		var sign, node string
		if _, err := fmt.Sscan(strings.ReplaceAll(line, ",", " "), &seconds, &sign, &node); err != nil {
			tb.Fatal(err)
		}
		fleet = append(fleet, change{time.Duration(seconds) * time.Second, sign == "+", node})
	})
	return fleet
}

func forEachLine(tb testing.TB, name string, do func(string)) {
	tb.Helper()
	file, err := os.Open("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		do(lines.Text())
	}
}

// recording runs a workload on a recorded trace.
type recording struct {
	name string
	run  func(workload, policy) tally

	// safe is the least slack from which the rule must keep 99 % of the deadlines: below
	// it the recording leaves too little time.
	safe float64
}

func recordings(tb testing.TB) []recording {
	lives, p3, g4dn := readLives(tb), readFleet(tb, "aws-p3-fleet.csv"), readFleet(tb, "aws-g4dn-fleet.csv")
	return []recording{
		{"Google, single VMs", func(w workload, p policy) tally { return onSingleVMs(lives, w, p, 3000) }, 1.25},
		{"AWS p3 fleet", func(w workload, p policy) tally { return onFleet(p3, w, p, 40) }, 1.1},
		{"AWS g4dn fleet", func(w workload, p policy) tally { return onFleet(g4dn, w, p, 40) }, 1.5},
	}
}

// TestRecordedLives replays recorded lives of VMs, and checks the tables in recorded.md:
// deadlines met and cost with and without the rule, and where the estimate is wrong.
func TestRecordedLives(t *testing.T) {
	const work = 4 * time.Hour
	var table, wrong strings.Builder
	all := recordings(t)
	for _, r := range all {
		for _, slack := range []float64{1.1, 1.25, 1.5, 2} {
			w := workload{work: work, slack: slack, estimate: 1, reports: true}
			spot, three, without, rule := r.run(w, spotOnly), r.run(w, afterThree), r.run(w, noSearch), r.run(w, theRule)
			fmt.Fprintf(&table, "| %s | %.2f | %s | %s | %s | %s |\n", r.name, slack, spot, three, without, rule)
			if rule.met < without.met {
				t.Errorf("%s, slack %.2f: %d deadlines met with a search and %d without", r.name, slack, rule.met, without.met)
			}
			if slack >= r.safe && rule.share(rule.met) < 99 {
				t.Errorf("%s, slack %.2f: the rule met %.1f %% of the deadlines, want 99", r.name, slack, rule.share(rule.met))
			}
			if rule.met < spot.met {
				t.Errorf("%s, slack %.2f: %d deadlines met with the rule and %d on Spot VMs alone", r.name, slack, rule.met, spot.met)
			}
			if least, most := spot.relativeCost()-0.1, 100.0; rule.relativeCost() < least || rule.relativeCost() >= most {
				t.Errorf("%s, slack %.2f: the rule costs %.1f %%, want %.1f to %.1f", r.name, slack, rule.relativeCost(), least, most)
			}
		}
	}
	for _, known := range []struct {
		name string
		workload
	}{
		{"right, with a fraction", workload{estimate: 1, reports: true}},
		{"half of the work, with a fraction", workload{estimate: .5, reports: true}},
		{"twice the work, with a fraction", workload{estimate: 2, reports: true}},
		{"none, with a fraction", workload{reports: true}},
		{"right, without a fraction", workload{estimate: 1}},
		{"half of the work, without a fraction", workload{estimate: .5}},
		{"twice the work, without a fraction", workload{estimate: 2}},
		{"neither", workload{}},
	} {
		known.work = work
		fmt.Fprintf(&wrong, "| %s", known.name)
		for _, r := range all {
			known.slack = r.safe
			fmt.Fprintf(&wrong, " | %s", r.run(known.workload, theRule))
		}
		wrong.WriteString(" |\n")
	}
	compareTable(t, "recorded lives", table.String())
	compareTable(t, "estimates", wrong.String())
}

// String is a cell of a table: deadlines met, jobs moved, cost.
func (t tally) String() string {
	return fmt.Sprintf("%.1f %% · %.0f %% · %.0f %%", t.share(t.met), t.share(t.moved), t.relativeCost())
}

var update = flag.Bool("update", false, "write the tables in recorded.md")

// compareTable compares the rows of a table between its marks.
func compareTable(t *testing.T, name, rows string) {
	t.Helper()
	const doc = "recorded.md"
	raw, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	before, rest, found := strings.Cut(string(raw), begin)
	inside, behind, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no marks for the table %s", doc, name)
	}
	head := strings.SplitAfterN(inside, "\n", 3)
	want := head[0] + head[1] + rows
	if inside == want {
		return
	}
	if *update {
		if err := os.WriteFile(doc, []byte(before+begin+want+end+behind), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("table %s of %s is not what the rule does; write it with -update. It should be:\n%s", name, doc, want)
}
