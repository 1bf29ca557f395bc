package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/overview/givenup"
)

// changeOf makes the change of an address, with its question. Reads that the question needs are
// made now: the change concerns the jobs of the question.
func (s *Server) changeOf(ctx context.Context, q url.Values) (*change, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	id := q.Get("id")
	switch do := q.Get("do"); do {
	case "cancel":
		return s.cancelOne(ctx, id)
	case "cancel-selected":
		return s.cancelSelected(ctx, selectionOf(q))
	case "replay", "purge":
		return s.poison(ctx, do, id, q.Get("group"))
	case "requeue":
		return s.requeue(ctx, id)
	case "again":
		return s.runAgain([]string{id}, "job "+line(id), addressOf(id)), nil
	case "drain", "resume":
		return s.drain(do, q.Get("worker")), nil
	case "quarantine", "free":
		return s.quarantine(do, q.Get("vm"))
	case "pause", "unpause":
		return s.pause(do, q.Get("kind")), nil
	}
	return nil, errors.New("there is no such change")
}

// changeOfRows makes a change of selected jobs, with its question.
func (s *Server) changeOfRows(do string, ids []string) (*change, error) {
	if len(ids) == 0 {
		return nil, errors.New("no job is selected")
	}
	which := jobsOf(len(ids))
	switch do {
	case "cancel":
		return &change{Title: "Cancel " + which, Question: actions.CancelQuestion("the " + which), Button: "Cancel " + which, Danger: true,
			HasReason: true, About: []string{aboutCancel}, Back: "/jobs",
			do: func(ctx context.Context, o changeOptions, done *outcome) error {
				return s.cancelJobs(ctx, ids, client.CancelOptions{Reason: o.reason, KnownOnly: true, SeenOnly: true}, done)
			}}, nil
	case "replay":
		one := s.replay(client.Selection{IDs: ids}, which, "", "/jobs")
		one.About = append(one.About, "The others of the selected jobs stay as they are.")
		return one, nil
	case "again":
		return s.runAgain(ids, which, "/jobs"), nil
	}
	return nil, errors.New("there is no such change")
}

// backOf is the address to go back to from a change that cannot be made.
func backOf(q url.Values) string {
	switch q.Get("do") {
	case "cancel", "requeue", "again":
		return addressOf(q.Get("id"))
	case "cancel-selected":
		return selectionOf(q).Address()
	case "replay", "purge":
		if q.Get("id") != "" {
			return addressOf(q.Get("id"))
		}
		return "/poison"
	}
	return "/workers"
}

// addressOf is the address of a job's page.
func addressOf(id string) string { return "/job/" + url.PathEscape(id) }

// cancelJobs cancels jobs.
func (s *Server) cancelJobs(ctx context.Context, ids []string, o client.CancelOptions, done *outcome) error {
	var sum actions.CancelSum
	err := s.config.Client.Cancel(ctx, ids, o, func(r client.ActionResult) error {
		sum.Count(r.Action)
		return done.add(r)
	})
	done.note(sum.String())
	return sum.Outcome(s.changes.ctx, err)
}

func (s *Server) cancelOne(ctx context.Context, id string) (*change, error) {
	one := &change{Title: "Cancel " + id, Question: actions.CancelQuestion("job " + line(id)), Button: "Cancel the job", Danger: true,
		HasReason: true, Back: addressOf(id)}
	j, err := s.config.Client.Get(ctx, id)
	switch {
	case isNoJob(err):
		one.About = []string{"It has no record. It is cancelled if it is among the 32 messages that the service shows of a queue; otherwise " +
			"nothing is written."}
	case err != nil:
		return nil, err
	default:
		one.About = []string{"It is " + string(j.Status) + ". " + aboutCancel}
	}
	one.do = func(ctx context.Context, o changeOptions, done *outcome) error {
		return s.cancelJobs(ctx, []string{id}, client.CancelOptions{Reason: o.reason, SeenOnly: true}, done)
	}
	return one, nil
}

const aboutCancel = "A waiting job is no longer started, and a running one is stopped within 30 s. " +
	"It can only be run again from the beginning, with its payload."

// cancelSelected cancels the jobs of a page of jobs that have not ended.
func (s *Server) cancelSelected(ctx context.Context, chosen selection) (*change, error) {
	if !chosen.IsNarrow() {
		return nil, errors.New("nothing is chosen: narrow the list of jobs first")
	}
	if err := actions.CheckCancelStatus(chosen.Status); err != nil {
		return nil, err
	}
	c := s.config.Client
	m, err := actions.Match(ctx, c, client.Filter{}, chosen.has())
	if err != nil {
		return nil, err
	}
	if len(m.IDs) == 0 {
		remark, err := m.Nothing(chosen.Kind, chosen.Group)
		if err == nil {
			err = errors.New(remark)
		}
		return nil, err
	}
	one := &change{
		Title: "Cancel " + jobsOf(len(m.IDs)), Question: actions.CancelQuestion(m.String()), Button: "Cancel " + jobsOf(len(m.IDs)), Danger: true,
		HasReason: true, About: []string{aboutCancel}, Back: chosen.Address(),
		do: func(ctx context.Context, o changeOptions, done *outcome) error {
			err := s.cancelJobs(ctx, m.IDs, client.CancelOptions{Reason: o.reason, KnownOnly: true, SeenOnly: true}, done)
			if err == nil && chosen.Group != "" {
				again, unread := actions.Match(ctx, c, client.Filter{}, chosen.has())
				err = errors.Join(again.Meanwhile(chosen.Group), unread)
			}
			return err
		},
	}
	if chosen.Group == "" {
		one.About = append(one.About, "Not selected: "+actions.WithoutRecord+".")
	}
	return one, nil
}

func jobsOf(n int) string { return overview.Number(n) + " job" + plural(n) }

// poison replays or purges a job, the jobs of a group, or with neither all on the queue.
func (s *Server) poison(ctx context.Context, do, id, group string) (*change, error) {
	selection, back := client.Selection{IDs: []string{id}}, addressOf(id)
	which, question := "job "+line(id), ""
	switch {
	case id == "" && group == "":
		_, about, err := s.config.Client.PeekPoison(ctx)
		if err != nil {
			return nil, err
		}
		selection, back, which = client.Selection{All: true}, "/poison", "all jobs"
		question = actions.PurgeQuestion("all of", about)
		if do == "replay" {
			question = fmt.Sprintf("Replay all of about %d messages?", about)
		}
	case id == "":
		v, _ := s.feed.now()
		if v.state == nil || v.isPart() {
			return nil, errors.New("the jobs were not read yet: repeat it")
		}
		i := slices.IndexFunc(v.givenUp, func(g givenup.Group) bool { return groupKey(g) == group })
		if i < 0 {
			return nil, errors.New("the poison queue has no such job any longer: load the page again")
		}
		selection, back, which = client.Selection{IDs: v.givenUp[i].IDs}, "/poison", jobsOf(len(v.givenUp[i].IDs))
	}
	if do == "replay" {
		return s.replay(selection, which, question, back), nil
	}
	return &change{
		Title: "Purge " + which, Question: cmp.Or(question, "Purge "+which+"? This cannot be undone."), Button: "Purge " + which, Back: back,
		Danger: true, About: []string{"The job becomes cancelled; its state, its payload and its message are removed. Its record " +
			"stays, so that no old message starts it again."},
		do: func(ctx context.Context, _ changeOptions, done *outcome) error {
			return s.operate(done, func(report func(client.ActionResult) error) error {
				return s.config.Client.Purge(ctx, selection, report)
			})
		},
	}, nil
}

// replay replays dead-lettered jobs.
func (s *Server) replay(selection client.Selection, which, question, back string) *change {
	return &change{
		Title: "Replay " + which, Question: cmp.Or(question, "Replay "+which+"?"), Button: "Replay " + which, Back: back, HasScratch: true,
		About: []string{"A job that was dead-lettered goes back to the queue that it came from, and continues from its recorded state. " +
			"Its failures, unclean exits and run time are reset."},
		do: func(ctx context.Context, o changeOptions, done *outcome) error {
			return s.operate(done, func(report func(client.ActionResult) error) error {
				return s.config.Client.Replay(ctx, selection, client.ReplayOptions{FromScratch: o.fromScratch}, report)
			})
		},
	}
}

// runAgain starts jobs again that have ended.
func (s *Server) runAgain(ids []string, which, back string) *change {
	return &change{
		Title: "Run " + which + " again", Question: "Run " + which + " again from the beginning?", Button: "Run " + which + " again", Back: back,
		Danger: true,
		About: []string{"The payload, inputs and group stay; a result is gone, and the story keeps the outcome. Limits and deadline of " +
			"a job that was not dead-lettered are lost. A job whose payload is gone, or that has not ended, stays as it is."},
		do: func(ctx context.Context, _ changeOptions, done *outcome) error {
			return s.operate(done, func(report func(client.ActionResult) error) error {
				return s.config.Client.RunAgain(ctx, ids, report)
			})
		},
	}
}

// operate counts the outcomes of a replay or purge.
func (s *Server) operate(done *outcome, do func(func(client.ActionResult) error) error) error {
	var sum actions.PoisonSum
	err := do(func(r client.ActionResult) error {
		if !sum.Count(r) {
			return nil
		}
		return done.add(r)
	})
	done.note(sum.String())
	return sum.Outcome(s.changes.ctx, err)
}

// groupKey names a group of jobs that were dead-lettered, for addresses.
func groupKey(g givenup.Group) string {
	sum := sha256.Sum256([]byte(g.Kind + "\x00" + g.Reason))
	return hex.EncodeToString(sum[:12])
}

// requeue puts a new message for a job that has lost its own.
func (s *Server) requeue(ctx context.Context, id string) (*change, error) {
	c := s.config.Client
	report, err := c.Orphans(ctx, actions.OrphanIdle)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(report.Jobs, func(o client.Orphan) bool { return o.Job.ID == id })
	if i < 0 {
		return nil, (&actions.RequeueSum{NotFound: []string{id}}).Outcome(nil)
	}
	orphan := report.Jobs[i]
	if err := c.CheckRequeue(ctx, orphan, client.RequeueOptions{}); err != nil {
		return nil, err
	}
	one := &change{
		Title: "Requeue " + id, Question: "Put a new message for job " + line(id) + "?", Button: "Put a new message", Back: addressOf(id),
		HasOnDemand: true,
		About:       []string{"The job continues from its recorded state. Settings that only the old message had are lost: limits and trace."},
		do: func(ctx context.Context, o changeOptions, done *outcome) error {
			r := c.Requeue(ctx, orphan, client.RequeueOptions{OnDemand: o.onDemand})
			var sum actions.RequeueSum
			sum.Count(r.Action)
			done.note(sum.String())
			return errors.Join(done.add(r), sum.Outcome(nil))
		},
	}
	if moved := orphan.Job.MoveReason; moved != "" {
		one.About = append(one.About, "It was moved to the queue for VMs of regular priority: "+line(moved)+".")
	}
	if text := actions.Coverage(report); text != "" {
		one.About = append(one.About, text+". A second message does no harm.")
	}
	return one, nil
}

// steer asks something of workers.
func (s *Server) steer(action, nothing string, do func(context.Context, client.SteerOptions) (client.Steered,
	error)) func(context.Context, changeOptions, *outcome) error {
	return func(ctx context.Context, o changeOptions, done *outcome) error {
		if err := actions.CheckReason(o.reason); err != nil {
			return err
		}
		asked, err := do(ctx, client.SteerOptions{Reason: o.reason, KnownOnly: true})
		if err != nil {
			return actions.NotDone(err, nothing, "")
		}
		done.note(actions.AskedNotes(action, s.config.Control, asked)...)
		return nil
	}
}

// drain drains or resumes a worker, the workers of a VM, or without a name all.
func (s *Server) drain(do, name string) *change {
	var names []string
	if name != "" {
		names = []string{name}
	}
	one := &change{Back: "/workers", HasReason: true}
	if do == "drain" {
		one.Title, one.Question, one.Button = "Drain "+line(name), "Drain "+line(name)+"?", "Drain"
		one.About = []string{"A drained worker saves its jobs, hands them over to other workers and idles until it is resumed."}
		if name == "" {
			one.Title, one.Question, one.Danger = "Drain all workers", actions.DrainAllQuestion, true
			one.About = append(one.About, "No job of the deployment runs then.")
		}
		one.do = s.steer(do, "", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
			return s.config.Client.Drain(ctx, names, o)
		})
		return one
	}
	one.Title, one.Question, one.Button = "Resume "+line(name), "Let "+line(name)+" work again?", "Resume"
	if name == "" {
		one.Title, one.Question = "Resume all workers", "Let all drained workers work again?"
	}
	one.do = s.steer(do, "", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
		return s.config.Client.Resume(ctx, names, o)
	})
	return one
}

func (s *Server) quarantine(do, vm string) (*change, error) {
	if vm == "" {
		return nil, errors.New("nothing is chosen: give the name of a VM")
	}
	if do == "free" {
		return &change{
			Title: "Free " + line(vm), Question: "End the quarantine of " + line(vm) + "?", Button: "Free", Back: "/workers", HasReason: true,
			do: s.steer(do, "", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
				return s.config.Client.Resume(ctx, []string{vm}, o)
			}),
		}, nil
	}
	return &change{
		Title: "Quarantine " + line(vm), Question: "Keep all work from " + line(vm) + "?", Button: "Quarantine", Back: "/workers",
		HasReason: true,
		About:     []string{"All workers on the VM are drained, also one that starts there later, until it is freed."},
		do: s.steer(do, "nothing was quarantined", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
			return s.config.Client.Quarantine(ctx, []string{vm}, o)
		}),
	}, nil
}

// pause stops or continues the claiming of all workers, or the jobs of a kind.
func (s *Server) pause(do, kind string) *change {
	var kinds []string
	if kind != "" {
		kinds = []string{kind}
	}
	one := &change{Back: "/workers", HasReason: true}
	if do == "pause" {
		one.Title, one.Question, one.Button = "Pause all workers", actions.PauseQuestion, "Pause"
		one.About = []string{"Jobs that run continue to their end."}
		if kind != "" {
			one.Title, one.Question = "Pause "+line(kind), line(actions.PauseKindsQuestion(kinds))
		}
		one.do = s.steer(do, "nothing was paused", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
			return s.config.Client.Pause(ctx, kinds, o)
		})
		return one
	}
	one.Title, one.Question, one.Button = "End all pauses", "Let all workers claim again?", "Unpause"
	if kind != "" {
		one.Title, one.Question = "Unpause "+line(kind), "Start jobs of "+line(kind)+" again?"
	}
	one.do = s.steer(do, "", func(ctx context.Context, o client.SteerOptions) (client.Steered, error) {
		return s.config.Client.Unpause(ctx, kinds, o)
	})
	return one
}
