package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/text/charset"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// scenarioFlags are the flags that make a scenario.
type scenarioFlags struct {
	Scenario string `arg:"" optional:"" name:"file" help:"${about_replay_file}"`

	Lives       string        `help:"${about_replay_lives}" default:"poisson" placeholder:"NAME|FILE" env:"-"`
	VMs         int           `help:"VMs at a time. 0 takes all VMs of a recorded fleet." name:"vms" default:"10" env:"-"`
	Slots       int           `help:"Jobs that a VM runs at once." default:"1" env:"-"`
	Evictions   float64       `help:"Evictions per hour of a VM, for synthetic lives." default:"0.05" env:"-"`
	Noticed     float64       `help:"Share of the evictions that are announced 30 s before." default:"0.9" env:"-"`
	ShortNotice float64       `help:"Share that is announced less than 10 s before. The rest comes without a notice." default:"0" env:"-"`
	Boot        time.Duration `help:"Time from when a VM is paid for until its worker takes work." default:"3m" env:"-"`
	Jobs        int           `help:"Jobs, all there at the start. 0 takes as many as --load needs." default:"0" env:"-"`
	Load        float64       `help:"Share of the slots' time that the jobs need; they come at an even pace." default:"0.9" env:"-"`
	JobTime     time.Duration `help:"Time of a job that nothing interrupts." default:"1h" env:"-"`
	SaveTime    time.Duration `help:"Time that saving a job's state takes. The job does not work in it." default:"35ms" env:"-"`
	RestoreTime time.Duration `help:"Time from a claim until a resumed job works again." default:"1s" env:"-"`
	For         time.Duration `help:"Time to replay." default:"24h" env:"-"`
	Seed        uint64        `help:"Seed of what is drawn." default:"1" env:"-"`
	Price       float64       `help:"Price of an hour of a VM, as spotctl prices prints it." default:"0" env:"-"`
	Regular     float64       `help:"Price of an hour of a VM of regular priority." name:"regular-price" default:"0" env:"-"`

	offerFlags
	measureFlags

	given  map[string]bool // flags on the command line
	policy replay.Policy   // interval and absence of checkpoints alone
}

// beside are the flags that may stand beside a file.
var beside = []string{"html", "output", "write-scenario", "help", "compare"}

// AfterApply is called by kong when the flags are set. It refuses flags that a file would hide,
// and flags of a measurement without a kinds file.
func (c *scenarioFlags) AfterApply(ctx *kong.Context) error {
	c.given = map[string]bool{}
	for _, given := range ctx.Path {
		if given.Flag != nil {
			c.given[given.Flag.Name] = true
		}
		if flag := given.Flag; flag != nil && c.Scenario != "" && !slices.Contains(beside, flag.Name) {
			return fmt.Errorf("--%s and the scenario %s: a file has the whole scenario; change it there", flag.Name, c.Scenario)
		}
	}
	for _, name := range []string{"kind", "payload", "payload-file", "env", "timeout"} {
		if c.given[name] && c.KindsFile == "" {
			return fmt.Errorf("--%s is for a job that is measured: give --kinds-file", name)
		}
	}
	return nil
}

// scenario returns the scenario of the file or of the flags. It measures the job of a kinds file.
func (c *scenarioFlags) scenario(ctx context.Context) (replay.Scenario, error) {
	if c.Scenario != "" {
		data, err := charset.ReadFile(c.Scenario)
		if err != nil {
			return replay.Scenario{}, configError(err)
		}
		s, err := replay.ReadScenario(c.Scenario, data)
		return s, configError(err)
	}
	of := func(d time.Duration) replay.Duration { return replay.Duration{Duration: d} }
	s := replay.Default()
	s.Fleet = replay.Fleet{
		VMs: c.VMs, Slots: c.Slots, Lives: c.Lives, Rate: c.Evictions, Full: c.Noticed, Short: c.ShortNotice,
		Boot: of(c.Boot), Price: c.Price, Dear: c.Regular,
	}
	s.Work = replay.Work{Jobs: c.Jobs, Load: c.Load, Length: of(c.JobTime), Save: of(c.SaveTime), Restore: of(c.RestoreTime)}
	if err := c.apply(&s.Fleet, c.given); err != nil {
		return s, configError(err)
	}
	s.Policy.Interval, s.Policy.Never = c.policy.Interval, c.policy.Never
	s.For, s.Seed = of(c.For), c.Seed
	err := s.Validate()
	if err != nil || c.KindsFile == "" {
		return s, configError(err)
	}
	work, err := c.measure(ctx, s.Work, c.given)
	if err != nil {
		return s, err
	}
	s.Work = work
	return s, configError(s.Validate())
}

// replayCommand are the flags of lab replay.
type replayCommand struct {
	scenarioFlags
	Interval      time.Duration `name:"checkpoint-interval" help:"Time between two saves. 0s is the adaptive policy." default:"0s" env:"-"`
	NoCheckpoints bool          `help:"Save nothing: each run starts from the beginning." env:"-"`
	Compare       bool          `help:"Replay it under several policies, and compare what evictions cost." env:"-"`
	HTML          string        `help:"Write a page with pictures to this file." name:"html" placeholder:"FILE" env:"-"`
	WriteScenario bool          `help:"Print the scenario as JSON, to edit and to give as FILE, and replay nothing." env:"-"`

	json bool
}

// useJSON implements [inJSON].
func (c *replayCommand) useJSON() { c.json = true }

// Help is shown by replay --help.
func (*replayCommand) Help() string {
	return `Replays the lives of Spot VMs and the jobs on them in virtual time: what evictions do to jobs
of this length, with saves of this cost, on VMs that are evicted that often. What the workers decide
is decided by their own code. docs/lab.md describes the model.

    lab replay --vms 1000 --for 7d
    lab replay --lives gcp-2019 --job-time 6h --save-time 1s --html replay.html
    lab replay --kinds-file kinds.json --kind train --payload-file job.json \
        --prices prices.json --size D2as_v5 --region westeurope
    lab replay --write-scenario >scenario.json; lab replay scenario.json

With --kinds-file the job runs on this machine first, as lab try runs it, for about four times its
length: the replay has its measured time, states, and behaviour at a notice.

With --compare the scenario is replayed under several policies: how often jobs are saved, with and
without notices, with and without release, with a longer visibility, and with jobs that move to
regular VMs. All see the same lives of VMs and the same jobs.

    lab replay --compare --lives gcp-2019 --save-time 1s --job-time 6h

A FILE has the whole scenario: flags of the scenario do not go with it.`
}

func (c *replayCommand) run(ctx context.Context, stdout io.Writer) error {
	c.policy.Interval.Duration, c.policy.Never = c.Interval, c.NoCheckpoints
	s, err := c.scenario(ctx)
	if err != nil {
		return err
	}
	if c.WriteScenario {
		return printJSON(stdout, s)
	}
	if c.Compare {
		return c.compare(ctx, s, stdout)
	}
	report, err := replay.Run(ctx, s)
	if err != nil {
		return scenarioError(ctx, err)
	}
	if c.HTML != "" {
		if err := writePage(c.HTML, report.Page); err != nil {
			return err
		}
	}
	if c.json {
		return printJSON(stdout, report)
	}
	return printReport(stdout, report, c.HTML)
}

// writePage writes a page to a file.
func writePage(file string, write func(io.Writer) error) error {
	var page bytes.Buffer
	if err := write(&page); err != nil {
		return err
	}
	return os.WriteFile(file, page.Bytes(), 0o600)
}

// scenarioError marks an error of a replay that another scenario would avoid.
func scenarioError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return configError(err)
}

// printJSON prints a value, indented.
func printJSON(stdout io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = stdout.Write(append(plaintext.JSON(text), '\n'))
	return err
}

// printReport prints a report for people.
func printReport(stdout io.Writer, r *replay.Report, page string) error {
	h := r.Hours
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "%s\n\n", plaintext.Line(r.Scenario.Words()))
	fmt.Fprintf(out, "goodput   %6.2f %%  of the time in which jobs ran\n", h.Goodput())
	fmt.Fprintf(out, "          %6.2f %%  of the time paid for, without idle slots\n", h.GoodputBusy())
	fmt.Fprintf(out, "          %6.2f %%  of the time paid for\n\n", h.GoodputPaid())
	paid := table.New(table.Column{Name: "paid slot-hours"}, table.Column{Name: "hours", Right: true}, table.Column{Name: "share",
		Right: true})
	for _, part := range h.Parts() {
		paid.Add(part.Name, fmt.Sprintf("%.2f", part.Hours), fmt.Sprintf("%.2f %%", part.Share))
	}
	ends := table.New(table.Column{Name: "runs ended"}, table.Column{Name: "runs", Right: true}, table.Column{Name: "redone", Right: true},
		table.Column{Name: "claimable after", Right: true}, table.Column{Name: "ran after", Right: true}, table.Column{Name: "p50",
			Right: true}, table.Column{Name: "p99", Right: true})
	for _, row := range []struct {
		name string
		replay.Losses
	}{{"after a notice", r.Warned}, {"without a notice", r.Sudden}} {
		if row.Runs == 0 {
			ends.Add(row.name, "0")
			continue
		}
		ran := []string{"-", "-", "-"} // no job ran again before the end
		if row.Resumed > 0 {
			ran = []string{seconds(row.Mean), seconds(row.Median), seconds(row.P99)}
		}
		ends.Add(append([]string{row.name, fmt.Sprint(row.Runs), seconds(row.Redone), seconds(row.Hidden)}, ran...)...)
	}
	for _, t := range []*table.Table{paid, ends} {
		for _, line := range t.Lines(0) {
			fmt.Fprintln(out, line)
		}
		fmt.Fprintln(out)
	}
	for _, fact := range r.Facts() {
		fmt.Fprintf(out, "%-14s %s\n", fact[0], fact[1])
	}
	if page != "" {
		fmt.Fprintf(out, "\nThe page with pictures is %s\n", plaintext.Line(page))
	}
	_, err := stdout.Write(out.Bytes())
	return err
}

// seconds writes a number of seconds as a duration.
func seconds(s float64) string { return replay.Brief(time.Duration(s * float64(time.Second))) }

// compare replays a scenario under several policies.
func (c *replayCommand) compare(ctx context.Context, s replay.Scenario, stdout io.Writer) error {
	choices := replay.Choices(s)
	reports, err := replay.Compare(ctx, s, choices)
	if err != nil {
		return scenarioError(ctx, err)
	}
	if c.json {
		type named struct {
			Name string `json:"policy"`
			*replay.Report
		}
		var all []named
		for i, r := range reports {
			all = append(all, named{choices[i].Name, r})
		}
		return printJSON(stdout, all)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n\n", plaintext.Line(s.Words()))
	for _, line := range compared(s, choices, reports).Lines(0) {
		fmt.Fprintln(&out, line)
	}
	_, err = stdout.Write(out.Bytes())
	return err
}

// compared has a line for each policy.
func compared(s replay.Scenario, choices []replay.Choice, reports []*replay.Report) *table.Table {
	right := func(name string) table.Column { return table.Column{Name: name, Right: true} }
	columns := []table.Column{{Name: "policy"}, right("goodput"), right("of paid"), right("redone: noticed"), right("sudden"),
		right("ran after: noticed"), right("sudden"), right("saves/h"), right("calls/h"), right("done")}
	if s.Fleet.Price > 0 {
		columns = append(columns, right("cost/h"))
	}
	t := table.New(columns...)
	for i, r := range reports {
		per := func(n float64) float64 { return n / max(r.Hours.Useful, 1e-9) }
		var redone, ran [2]string
		for i, l := range []replay.Losses{r.Warned, r.Sudden} {
			if l.Runs > 0 {
				redone[i] = seconds(l.Redone)
			}
			if l.Resumed > 0 {
				ran[i] = seconds(l.Mean)
			}
		}
		cells := []string{choices[i].Name, fmt.Sprintf("%.2f %%", r.Hours.Goodput()), fmt.Sprintf("%.2f %%", r.Hours.GoodputBusy()), redone[0],
			redone[1], ran[0], ran[1],
			fmt.Sprintf("%.1f", per(float64(r.Saves))), fmt.Sprintf("%.0f", per(float64(r.Calls))), fmt.Sprintf("%d of %d", r.Done, r.Jobs)}
		switch {
		case s.Fleet.Price > 0 && choices[i].Fixed > 0 && s.Fleet.Dear == 0:
			cells = append(cells, "unknown") // without a price of regular VMs
		case s.Fleet.Price > 0:
			cells = append(cells, fmt.Sprintf("%.4f", per(r.Cost)))
		}
		t.Add(cells...)
	}
	return t
}
