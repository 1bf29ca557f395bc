package web

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
)

// change is a change of the deployment that the user is asked about.
type change struct {
	Key      string // which the confirmation names; it works once
	Title    string
	Question string
	About    []string // the consequences
	Button   string
	Danger   bool   // it cannot be undone
	Back     string // address of the page that it is about

	// Which fields the question has.
	HasReason, HasScratch, HasOnDemand bool

	do func(ctx context.Context, o changeOptions, done *outcome) error
}

// changeOptions are the fields of a question that the user filled in.
type changeOptions struct {
	reason                string
	fromScratch, onDemand bool
}

// outcome is how a change went. Its methods may be called at the same time.
type outcome struct {
	number      int
	Title, Back string

	mu      sync.Mutex
	results []client.ActionResult // the first of them
	count   int
	notes   []string
	err     string
	ended   bool

	done chan struct{} // closed at the end
}

// mostResults is how many results of a change are kept.
const mostResults = 200

// add adds a result, as the report of a method of client.
func (o *outcome) add(r client.ActionResult) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count++; len(o.results) < mostResults || r.Err != nil && len(o.results) < 2*mostResults {
		r.Detail = clip(r.Detail, lineShown)
		o.results = append(o.results, r)
	}
	return nil
}

// note adds remarks.
func (o *outcome) note(texts ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notes = append(o.notes, texts...)
}

// How many changes are kept: questions without an answer, and outcomes.
const (
	mostPending = 8
	mostMade    = 32
)

// changeTime is how long a change may take.
const changeTime = time.Hour

// quick is how long the browser waits for a change before it shows that it runs.
const quick = 2 * time.Second

// changes are the changes of a session.
type changes struct {
	ctx  context.Context //nolint:containedctx // ends the changes when the server ends
	stop context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	pending []*change
	made    []*outcome
	number  int
}

func newChanges() *changes {
	c := &changes{}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// end stops the changes and waits for them.
func (c *changes) end() {
	c.stop()
	c.runs.Wait()
}

// ask keeps a change until it is confirmed.
func (c *changes) ask(one *change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.Key = rand.Text()
	c.pending = append(c.pending, one)
	c.pending = slices.Delete(c.pending, 0, max(0, len(c.pending)-mostPending))
}

// take returns a change that is to be made, and forgets it; nil if there is none.
func (c *changes) take(key string) *change {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.pending, func(one *change) bool { return one.Key == key })
	if i < 0 {
		return nil
	}
	one := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	return one
}

// start makes a change.
func (c *changes) start(one *change, o changeOptions, explain func(error) string, then func()) *outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	made := &outcome{number: c.number, Title: one.Title, Back: one.Back, done: make(chan struct{})}
	c.made = append(c.made, made)
	c.made = slices.Delete(c.made, 0, max(0, len(c.made)-mostMade))
	c.runs.Go(func() {
		within, cancel := context.WithTimeout(c.ctx, changeTime)
		defer cancel()
		err := one.do(within, o, made)
		made.mu.Lock()
		if made.ended = true; err != nil {
			made.err = strings.ReplaceAll(explain(err), "\n", "; ")
		}
		made.mu.Unlock()
		then()
		close(made.done)
	})
	return made
}

// outcome returns a change that was made; nil if it is not kept.
func (c *changes) outcome(number int) *outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.made, func(o *outcome) bool { return o.number == number }); i >= 0 {
		return c.made[i]
	}
	return nil
}

// mostForm is the largest form in bytes. Larger payloads are for the producer.
const mostForm = 256 << 10

// mostQuery is the longest query of a question in bytes: names of jobs and workers are short.
const mostQuery = 4 << 10

// form reads the form of a request that changes something. It reports whether the request may:
// the form has the token of the session, which another site does not know.
func (s *Server) form(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	err := r.ParseForm()
	if _, isLong := errors.AsType[*http.MaxBytesError](err); isLong {
		http.Error(w, "the form is longer than 256 KiB: the producer puts such jobs", http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil || !s.guard.isForm(r.PostForm.Get("session")) {
		s.refuse(w, "This form is not of this session. Load the page again.")
		return false
	}
	return true
}

// make makes the change that the user confirmed, and leads to its outcome.
func (s *Server) make(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	one := s.changes.take(r.PostForm.Get("key"))
	if one == nil {
		p := s.blank(r.URL)
		p.Status, p.Name, p.Title = http.StatusConflict, "missing", "This question was answered"
		p.Body = "Each question works once, and only the last few are kept. Nothing was changed now. Go back to the job, load its page again " +
			"and look whether the change is still needed."
		s.show(w, p)
		return
	}
	s.run(w, r, one, changeOptions{
		reason: r.PostForm.Get("reason"), fromScratch: r.PostForm.Get("scratch") != "", onDemand: r.PostForm.Get("ondemand") != "",
	})
}

// run makes a change and leads to its outcome.
func (s *Server) run(w http.ResponseWriter, r *http.Request, one *change, o changeOptions) {
	made := s.changes.start(one, o, s.config.Explain, func() { s.jobs.forget(); s.feed.again() })
	select {
	case <-made.done:
	case <-time.After(quick):
	case <-r.Context().Done():
	}
	http.Redirect(w, r, "/changed/"+strconv.Itoa(made.number), http.StatusSeeOther)
}

// asked shows the question of a change.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.RawQuery) > mostQuery {
		http.Error(w, "the address is too long", http.StatusRequestURITooLong)
		return
	}
	p := s.blank(r.URL)
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	one, err := s.changeOf(ctx, r.URL.Query())
	s.question(w, p, one, err, backOf(r.URL.Query()))
}

// askedOfRows shows the question of a change of the selected jobs of a list.
func (s *Server) askedOfRows(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	one, err := s.changeOfRows(r.PostForm.Get("do"), r.PostForm["pick"])
	s.question(w, s.blank(r.URL), one, err, "/jobs")
}

// question shows the question of a change, or why there is none.
func (s *Server) question(w http.ResponseWriter, p *page, one *change, err error, back string) {
	if err != nil {
		p.Status, p.Name, p.Title, p.Body = http.StatusConflict, "refused", "This cannot be done", refused{line(s.config.Explain(err)), back}
		s.show(w, p)
		return
	}
	s.changes.ask(one)
	p.Name, p.Title, p.Body = "ask", line(one.Title), one
	s.show(w, p)
}

// refused is why there is no question.
type refused struct{ Why, Back string }

// blank is a page that reads nothing.
func (s *Server) blank(at *url.URL) *page {
	v, _ := s.feed.now()
	return &page{view: v, Status: http.StatusOK, Address: at.RequestURI(), Deployment: line(s.config.Title), Version: s.config.Version,
		Every: s.config.Every, Form: s.formToken()}
}

// formToken returns the token of the session for forms; empty if the page changes nothing.
func (s *Server) formToken() string {
	if !s.config.AllowChanges {
		return ""
	}
	return s.guard.form
}

// made is the body of the page with the outcome of a change.
type made struct {
	Title, Back  string
	Rows         []madeRow
	More, Count  int
	Notes        []string
	Err          string
	Ended, IsBad bool
}

// madeRow is the outcome for a job.
type madeRow struct {
	ID, Detail string
	Action     client.Action
	IsJob, Bad bool
}

// changed fills the page with the outcome of a change.
func (s *Server) changed(p *page, number string) {
	n, _ := strconv.Atoi(number)
	o := s.changes.outcome(n)
	if o == nil {
		p.Status, p.Name, p.Title, p.Body = http.StatusNotFound, "missing", "No such change",
			"Only the last few changes of this session are kept."
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b := made{Title: line(o.Title), Back: o.Back, More: o.count - len(o.results), Count: o.count, Err: line(o.err), Ended: o.ended,
		IsBad: o.err != ""}
	for _, text := range o.notes {
		b.Notes = append(b.Notes, line(text))
	}
	for _, r := range o.results {
		b.Rows = append(b.Rows, madeRow{ID: line(r.ID), Action: r.Action, Detail: line(r.Detail), IsJob: r.ID != r.MessageID, Bad: r.Err != nil})
	}
	p.Name, p.Title, p.Body = "changed", b.Title, b
}
