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
