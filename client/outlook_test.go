package client

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

func TestTimeLeft(t *testing.T) {
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		job  Job
		left time.Duration
		ok   bool
	}{
		"half": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon,
			UpdatedAt: noon.Add(-time.Minute)}, 59 * time.Minute, true},
		"overdue": {Job{Status: StatusRunning, Fraction: 0.9, RunTime: 9 * time.Second, ReadAt: noon,
			UpdatedAt: noon.Add(-time.Minute)}, 0, false},
		"begun again": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon, Deliveries: 2,
			ClaimedAt: noon.Add(-time.Minute)}, time.Minute, true},
		"continued": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon, Deliveries: 2,
			ClaimedAt: noon.Add(-time.Minute), StateSize: 1}, time.Hour, true},
		"begun again by a wrong clock": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Deliveries: 2, ClaimedAt: noon.Add(time.Minute)}, 0, false},
		"this delivery's speed": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 0.75, From: 0.5, Ran: time.Minute, Age: time.Second}}, 59 * time.Second, true},
		"no report in this delivery": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 0.5, From: 0.5, Ran: time.Minute}}, time.Hour, true},
		"hardly begun": {Job{Status: StatusRunning, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 1e-300, Ran: time.Hour}}, longestLeft, true},
		"a live report of the whole": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 1, Ran: time.Minute}}, time.Hour, true},
		"a live report of more": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 1.5, Ran: time.Minute}}, time.Hour, true},
		"a live report without time": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 0.75, From: 0.5}}, time.Hour, true},
		"a live report that is overdue": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Live: &Live{Fraction: 0.75, From: 0.5, Ran: time.Minute, Age: time.Hour}}, 0, true},
		"first delivery": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon, Deliveries: 1,
			ClaimedAt: noon.Add(-time.Minute)}, time.Hour, true},
		"begun again, no one knows when": {Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, ReadAt: noon, UpdatedAt: noon,
			Deliveries: 2}, time.Hour, true},
		"no fraction":    {Job{Status: StatusRunning, RunTime: time.Hour}, 0, false},
		"no time":        {Job{Status: StatusRunning, Fraction: 0.5}, 0, false},
		"does not run":   {Job{Status: StatusOpen, Fraction: 0.5, RunTime: time.Hour}, 0, false},
		"says it is all": {Job{Status: StatusRunning, Fraction: 1, RunTime: time.Hour}, 0, false},
	} {
		if left, ok := row.job.TimeLeft(); left != row.left || ok != row.ok {
			t.Errorf("%s: TimeLeft = %s, %t, want %s, %t", name, left, ok, row.left, row.ok)
		}
	}
}

// TestOutlook: the end and the risk of a job count the time since the last write, the known
// losses, the state, and a move.
func TestOutlook(t *testing.T) {
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	running := Job{Status: StatusRunning, Fraction: 0.5, RunTime: time.Hour, CreatedAt: noon.Add(-2 * time.Hour),
		UpdatedAt: noon.Add(-time.Minute),
		ReadAt:    noon, Deadline: noon.Add(2 * time.Hour), StateSize: 1, Deliveries: 2, TotalFailures: 1}
	end := noon.Add(61 * time.Minute)
	for _, row := range []struct {
		name   string
		change func(*Job)
		end    time.Time
		why    string
	}{
		{"running", func(*Job) {}, end, "the deadline is in 2h, about 1h1m of work are left, and a move after one more interruption takes 1h9m"},
		{"ten losses", func(j *Job) { j.Deliveries = 11 }, end, "the deadline is in 2h, and about 1h1m of work are left"},
		{"no state", func(j *Job) { j.StateSize = 0 }, noon.Add(59 * time.Minute),
			"the deadline is in 2h, about 1h1m of work are left, and a move after one more interruption takes 2h10m"},
		{"written in the future", func(j *Job) { j.UpdatedAt = noon.Add(time.Minute) }, noon.Add(time.Hour),
			"the deadline is in 2h, about 1h of work are left, and a move after one more interruption takes 1h10m"},
		{"waits", func(j *Job) { j.Status, j.Deliveries = StatusOpen, 3 }, time.Time{},
			"the deadline is in 2h, about 1h of work are left, and a move after one more interruption takes 1h10m"},
		{"waits for the first time", func(j *Job) { j.Status, j.Deliveries = StatusOpen, 1 }, time.Time{},
			"the deadline is in 2h, and about 1h of work are left"},
		{"moved", func(j *Job) { j.MoveReason = "late" }, end, "the deadline is in 2h, and about 1h1m of work are left"},
		{"no deadline", func(j *Job) { j.Deadline = time.Time{} }, noon.Add(59 * time.Minute), ""},
		{"done", func(j *Job) { j.Status = StatusDone }, time.Time{}, ""},
		{"failed as often as it was claimed", func(j *Job) { j.TotalFailures = 2 }, end,
			"the deadline is in 2h, and about 1h1m of work are left"},
		{"never claimed, in a group", func(j *Job) { j.Status, j.Deliveries, j.Group = StatusOpen, 0, "g" }, time.Time{}, ""},
		{"claimed, in a group", func(j *Job) { j.Status, j.Deliveries, j.Group = StatusOpen, 1, "g" }, time.Time{},
			"the deadline is in 2h, and about 1h of work are left"},
		{"open, of an older version", func(j *Job) { j.Status, j.Deliveries = StatusOpen, 0 }, time.Time{},
			"the deadline is in 2h, and about 1h of work are left"},
	} {
		j := running
		row.change(&j)
		end, known := j.ExpectedEnd()
		_, why := j.Risk()
		if !end.Equal(row.end) || known == row.end.IsZero() || why != row.why {
			t.Errorf("%s: the end is at %s (%t), %q, want %s, %q", row.name, end, known, why, row.end, row.why)
		}
	}
}

// TestRiskOfShortJobs: a job with a near deadline is at risk only if its own work takes most
// of the time.
func TestRiskOfShortJobs(t *testing.T) {
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		until, estimate time.Duration
		want            Risk
	}{
		"a minute of fifteen":       {15 * time.Minute, time.Minute, RiskOnTime},
		"ten minutes of fifteen":    {15 * time.Minute, 10 * time.Minute, RiskOnTime},
		"thirteen of fifteen":       {15 * time.Minute, 13 * time.Minute, RiskTight},
		"an hour of ninety minutes": {90 * time.Minute, time.Hour, RiskOnTime},
		"all but fifteen minutes":   {10 * time.Hour, 10*time.Hour - 15*time.Minute, RiskTight},
		"all but an hour":           {10 * time.Hour, 9 * time.Hour, RiskOnTime},
		"more than there is":        {10 * time.Minute, 30 * time.Minute, RiskLate},
	} {
		j := Job{Status: StatusRunning, CreatedAt: noon, ReadAt: noon, UpdatedAt: noon, Deadline: noon.Add(row.until), Estimate: row.estimate,
			Deliveries: 1}
		if got, why := j.Risk(); got != row.want {
			t.Errorf("%s: %s (%s), want %s", name, got, why, row.want)
		}
	}
}

func TestLifeOfWorker(t *testing.T) {
	for _, row := range []struct {
		state string
		age   time.Duration
		want  Life
	}{
		{"process", 30 * time.Second, Alive}, {"process", time.Minute, Silent}, {"process", 2 * time.Hour, Ended},
		{"start", time.Minute, Silent},
		{"shutdown", 30 * time.Second, Alive}, {"shutdown", time.Minute, Ended}, {"stopped", time.Second, Ended},
		{"process", presence.SilentAfter, Alive}, {"shutdown", presence.SilentAfter, Alive},
		{"process", time.Hour, Silent}, {"process", time.Hour + 1, Ended}, {"process", 59 * time.Minute, Silent},
	} {
		if got := (Worker{State: row.state, Age: row.age}).Life(); got != row.want {
			t.Errorf("Life of %s, %s = %s, want %s", row.state, row.age, got, row.want)
		}
	}
}
