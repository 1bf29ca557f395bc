package main

import (
	"fmt"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// outcomeLine is what became of a message, as a script reads it.
type outcomeLine struct {
	ID      string         `json:"id,omitempty"` // the job's, if it is known
	Message string         `json:"message"`
	Action  operate.Action `json:"action"`
	Detail  string         `json:"detail,omitempty"`
}

// outcome prints what became of a message.
func (p *printer) outcome(o operate.Outcome) error {
	detail := o.Detail
	if o.Err != nil {
		detail = azure.Explain(o.Err)
	}
	if p.json {
		return p.line(outcomeLine{ID: o.Job, Message: o.MessageID, Action: o.Action, Detail: detail})
	}
	id := o.Job
	if id == "" {
		id = "message " + o.MessageID
	}
	_, err := fmt.Fprintf(p.out, "%-8s  %s  %s\n", o.Action, id, plaintext.Line(detail))
	return err
}

// summary is what came of a replay or purge.
type summary struct {
	Replayed int      `json:"replayed"`
	Purged   int      `json:"purged"`
	Dropped  int      `json:"dropped"`
	Refused  int      `json:"refused"`
	Failed   int      `json:"failed"`
	NotFound []string `json:"not_found,omitempty"`
	Error    string   `json:"error,omitempty"` // why the exit code is not 0
}

func (s *summary) count(a operate.Action) {
	*map[operate.Action]*int{
		operate.Replayed: &s.Replayed, operate.Purged: &s.Purged, operate.Dropped: &s.Dropped,
		operate.Refused: &s.Refused, operate.Failed: &s.Failed,
	}[a]++
}

// summary prints the sum, and returns err or what went wrong with that.
func (p *printer) summary(s *summary, err error) error {
	if !p.json {
		p.note("%d replayed, %d purged, %d dropped, %d refused, %d failed", s.Replayed, s.Purged, s.Dropped, s.Refused, s.Failed)
		return err
	}
	if err != nil {
		s.Error = azure.Explain(err)
	}
	if printErr := p.line(map[string]*summary{"summary": s}); err == nil {
		return printErr
	}
	return err
}
