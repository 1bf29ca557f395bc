package overview

import (
	"fmt"

	"github.com/spotworker/spotworker/client"
)

// Punctuality counts the jobs that have not ended, by whether they will meet their
// deadlines.
type Punctuality struct {
	AtRisk int // they may miss it
	Late   int // they can no longer meet it
}

// Add counts a job.
func (p *Punctuality) Add(j client.Job) {
	switch risk, _ := j.Risk(); {
	case risk == client.RiskLate:
		p.Late++
	case risk.AtRisk():
		p.AtRisk++
	}
}

// String says how many jobs are at risk or late; empty if none is.
func (p Punctuality) String() string {
	atRisk := count(p.AtRisk, "job may miss its deadline", "jobs may miss their deadlines")
	late := count(p.Late, "job cannot meet its deadline", "jobs cannot meet their deadlines")
	switch {
	case p.AtRisk > 0 && p.Late > 0:
		return fmt.Sprintf("%s, and %s any more", atRisk, late)
	case p.AtRisk > 0:
		return atRisk
	case p.Late > 0:
		return late + " any more"
	}
	return ""
}
