package client

import (
	"testing"
	"time"
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
			UpdatedAt: noon.Add(-time.Minute)}, 0, true},
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
	} {
		if got := (Worker{State: row.state, Age: row.age}).Life(); got != row.want {
			t.Errorf("Life of %s, %s = %s, want %s", row.state, row.age, got, row.want)
		}
	}
}
