package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview/actions"
)

// newJob is the body of the page that puts a job: the fields of the form, and why the job is
// invalid.
type newJob struct {
	ID, Kind, Group, Payload string
	IsText, OnDemand, Urgent bool
	Kinds                    []string
	Err                      string
}

// spec returns the job.
func (j *newJob) spec() client.Spec {
	spec := client.Spec{ID: j.ID, Kind: j.Kind, Group: j.Group, OnDemand: j.OnDemand, Urgent: j.Urgent}
	switch {
	case j.IsText:
		spec.Payload = []byte(j.Payload)
	case j.Payload != "":
		spec.Payload = json.RawMessage(j.Payload)
	}
	return spec
}

// newJobOf fills the page that puts a job.
func (s *Server) newJobOf(p *page, j newJob) {
	j.Kinds = p.Handled()
	p.Name, p.Title, p.Tab, p.Body = "put", "Put a job", "jobs", j
}

// put puts the job of a form. Where it is not valid the form is shown again.
func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	f := r.PostForm
	j := newJob{ID: strings.TrimSpace(f.Get("id")), Kind: strings.TrimSpace(f.Get("kind")), Group: strings.TrimSpace(f.Get("group")),
		Payload: strings.ReplaceAll(f.Get("payload"), "\r\n", "\n"), IsText: f.Get("text") != "",
		OnDemand: f.Get("ondemand") != "", Urgent: f.Get("urgent") != ""}
	if err := j.spec().Validate(); err != nil {
		p := s.blank(r.URL)
		j.Err = line(s.config.Explain(err))
		s.newJobOf(p, j)
		p.Status = http.StatusUnprocessableEntity
		s.show(w, p)
		return
	}
	do := func(ctx context.Context, _ changeOptions, done *outcome) error { return s.putJob(ctx, j.spec(), done) }
	s.run(w, r, &change{Title: "Put a job of kind " + line(j.Kind), Back: "/put", do: do}, changeOptions{})
}

// putJob puts a job as the producer does: it creates missing queues, and warns of a kind that no
// worker has.
func (s *Server) putJob(ctx context.Context, spec client.Spec, done *outcome) error {
	c := s.config.Client
	if err := c.Create(ctx); err != nil {
		return err
	}
	var refused error
	_, err := c.PutMany(ctx, client.Specs(spec), client.PutOptions{
		Report: func(r client.PutResult) error {
			if r.Err != nil {
				refused = actions.NotPut(r)
				return nil //nolint:nilerr // an error would end the run
			}
			if r.Warning != "" {
				done.note("warning: " + r.Warning)
			}
			if r.Skipped {
				return done.add(client.ActionResult{ID: r.ID, Action: "skipped", Detail: "the job has ended: " + string(r.Found)})
			}
			return done.add(client.ActionResult{ID: r.ID, Action: "enqueued", Detail: "its page appears when a worker has claimed it"})
		},
		UnknownKind: func(err error) { done.note("warning: " + err.Error()) },
		Unchecked:   func(err error) { done.note(actions.IDsUnchecked(s.config.Explain(err))) },
	})
	return errors.Join(refused, err)
}
