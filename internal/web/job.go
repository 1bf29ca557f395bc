package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// jobRead is one job with its log, as of one moment.
type jobRead struct {
	at      time.Time
	log     client.Log
	outputs []client.Output
	result  []byte
	payload client.PayloadStart
	known   bool // the payload
	err     error

	part   error // why the log, the outputs, the result or the payload are missing; nil if none is
	unread error // why the rest is as of an earlier moment; nil if it is not
	asOf   time.Time

	done chan struct{} // closed when it is complete
}

// jobReader reads single jobs, each once for all tabs that show it.
type jobReader struct {
	client  *client.Client
	explain func(error) string
	keep    time.Duration // for how long a read is shown

	mu   sync.Mutex
	last map[string]*jobRead
}

// mostJobs is how many jobs are kept.
const mostJobs = 16

// read returns a job that was read a moment ago, or reads it.
func (r *jobReader) read(ctx context.Context, id string) *jobRead {
	r.mu.Lock()
	found, before := r.last[id], (*jobRead)(nil)
	if found != nil && found.isDone() && time.Since(found.at) > r.keep {
		found, before = nil, found
	}
	if found == nil {
		found = &jobRead{at: time.Now(), done: make(chan struct{})}
		if len(r.last) >= mostJobs || r.last == nil {
			r.last = map[string]*jobRead{}
		}
		r.last[id] = found
		go func() {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
			defer cancel()
			r.load(within, id, found, before)
			close(found.done)
		}()
	}
	r.mu.Unlock()
	select {
	case <-found.done:
		return found
	case <-ctx.Done():
		return &jobRead{err: context.Cause(ctx)}
	}
}

// forget makes each job be read again.
func (r *jobReader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = nil
}

func (r *jobRead) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// load reads a job: its record and the end of its log; the log, the outputs, the result and the
// payload only if the record was written since before, or if they could not be read then.
func (r *jobReader) load(ctx context.Context, id string, to, before *jobRead) {
	live, err := r.client.Live(ctx, id)
	switch {
	case err == nil:
	case before != nil && before.err == nil && !isNoJob(err):
		to.log, to.outputs, to.result, to.payload, to.known = before.log, before.outputs, before.result, before.payload, before.known
		to.part = before.part
		to.unread, to.asOf = err, before.asOf
		return
	default:
		to.err = err
		return
	}
	to.log, to.asOf = live, to.at
	if before != nil && before.err == nil && before.part == nil && before.log.Job.UpdatedAt.Equal(live.Job.UpdatedAt) {
		to.log.Lines = joined(before.log.Lines, live.Lines)
		to.outputs, to.result, to.payload, to.known = before.outputs, before.result, before.payload, before.known
	} else {
		to.part = r.loadRest(ctx, id, to)
	}
	to.log.Lines = to.log.Lines[max(0, len(to.log.Lines)-mostLines):]
}

// loadRest reads the log, the outputs, the result and the payload of a job whose record was read.
func (r *jobReader) loadRest(ctx context.Context, id string, to *jobRead) error {
	var outputsErr, resultErr, payloadErr error
	log, logErr := r.client.Log(ctx, id)
	if logErr == nil {
		to.log.Lines = joined(log.Lines, to.log.Lines)
	}
	if to.log.Job.OutputFiles > 0 {
		to.outputs, outputsErr = r.client.Outputs(ctx, id)
	}
	if to.log.Job.Status == client.StatusDone && to.log.Job.ResultSize <= shown {
		to.result, resultErr = r.client.Result(ctx, id)
	}
	to.payload, to.known, payloadErr = r.client.PayloadStart(ctx, to.log.Job)
	return cmp.Or(logErr, outputsErr, resultErr, payloadErr)
}

// joined returns the lines of a log and the lines of its end that come after them.
func joined(known, end []client.LogLine) []client.LogLine {
	return append(slices.Clone(known), detail.NewLines(known, end)...)
}

// mostLines is how many lines of a log the page shows. Its file has all of them.
const mostLines = 400

// oneJob is the body of a job's page.
type oneJob struct {
	Row      jobRow
	Group    string
	WaitsFor string
	Part     string    // why its log, outputs or result are missing
	Unread   string    // why the job is shown as of AsOf
	AsOf     time.Time // by this machine's clock
	Reason   string
	Payload  string // its start; empty if it is not known
	Story    []moment
	Track    template.HTML // the story as a picture
	Redone   bool          // whether the picture has parts that were done again
	Evicted  bool          // whether it has evictions
	Saved    bool          // whether it has checkpoints
	Older    bool          // whether deliveries are missing in it
	From, To time.Time
	Ended    bool
	Ledger   costRow
	Known    bool // the ledger
	Facts    [][2]string
	Outputs  []outputRow
	Next     client.FollowUps
	Result   string
	HasMore  bool // of the result
	Log      []logRow
	Wakes    bool // whether the log may grow
	Changes  []button
}

// outputRow is a file of a job.
type outputRow struct{ Path, Size, Address string }

// logRow is a line of a log.
type logRow struct {
	Key, Time, Source, Text string
	Heading                 string // of a delivery that begins with the line
}

// job fills the page of a job.
func (s *Server) job(ctx context.Context, p *page, id string) {
	read := s.jobs.read(ctx, id)
	switch {
	case isNoJob(read.err):
		p.Status, p.Name, p.Title = http.StatusNotFound, "missing", "Job "+line(clip(id, 140))
		p.Body = "This job has no record: no worker has claimed it yet, it is in another deployment, or the id is wrong. " +
			"The page shows it when a worker has claimed it."
		return
	case read.err != nil:
		p.Status, p.Name, p.Title, p.Body = http.StatusBadGateway, "missing", "Job "+line(clip(id, 140)), line(s.config.Explain(read.err))
		return
	}
	j := read.log.Job
	p.Name, p.Title = "job", "Job "+j.ID
	v := p.view
	if v.state == nil {
		v.state = &state{skew: time.Since(j.ReadAt)}
	}
	b := oneJob{Row: v.rowOf(j, 0), Group: line(j.Group), Reason: line(j.Reason), Payload: detail.Payload(read.payload),
		Ended: j.Status.Ended(), Next: j.FollowUps, Log: logOf(read.log.Lines), Wakes: j.Status == client.StatusRunning,
		Result: plaintext.Block(clip(string(read.result), shown)), HasMore: j.ResultSize > shown}
	if b.Changes = changesOf(j, read.known); read.unread != nil {
		b.Unread, b.AsOf = line(s.config.Explain(read.unread)), read.asOf
	}
	if read.part != nil {
		b.Part = line(s.config.Explain(read.part))
	}
	if p.state != nil && v.Has(overview.PartWorkers) {
		b.WaitsFor = line(waitsFor(j, v.Workers))
	}
	skip := []string{"job", "kind", "group", "status", "reason", "progress", "cost", "result", "outputs", "follow-ups"}
	for _, row := range detail.JobRows(j, j.ReadAt.Add(v.skew)) {
		if row[1] != "" && !slices.Contains(skip, row[0]) && !strings.HasPrefix(row[0], detail.Delivery) { // the story has the errors
			b.Facts = append(b.Facts, [2]string{row[0], line(row[1])})
		}
	}
	for _, o := range read.outputs {
		b.Outputs = append(b.Outputs, outputRow{line(o.Path), detail.Size(o.Size),
			"/job/" + j.ID + "/output?path=" + template.URLQueryEscaper(o.Path)})
	}
	b.Ledger = costsOfJob(j.Cost)
	b.Known = j.Cost.Total() > 0
	b.tell(j, storyOf(j, read.log.Lines), v.skew)
	p.Body = b
}

// waitsFor says why a job waits; empty if it does not.
func waitsFor(j client.Job, workers []client.Worker) string {
	if j.Status == client.StatusOpen || j.Status == client.StatusRunning && j.Live == nil {
		return overview.WaitsFor(j, workers)
	}
	return ""
}

func costsOfJob(c client.Cost) costRow {
	r := costRowOf(c.Useful.Seconds(), c.Redone.Seconds(), c.Overhead.Seconds())
	r.Evictions, r.Exits = c.Evictions, c.UncleanExits
	return r
}

func logOf(lines []client.LogLine) (rows []logRow) {
	last := -1
	for _, l := range lines {
		r := logRow{Key: fmt.Sprintf("l%d-%d", l.Delivery, l.Number), Source: line(l.Source), Text: line(l.Text)}
		if l.Delivery != last && l.Delivery > 0 {
			r.Heading = fmt.Sprintf("delivery %d on %s", l.Delivery, line(l.Worker))
		}
		last = l.Delivery
		if l.LeftOut > 0 {
			r.Text = fmt.Sprintf("… %s lines left out", overview.Number(l.LeftOut))
		} else {
			r.Time = l.At.UTC().Format("15:04:05.000")
		}
		rows = append(rows, r)
	}
	return rows
}

// asFile makes the browser store a response instead of showing it: its content is the job's.
func asFile(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": plaintext.Line(name)}))
}

// fail answers a request for a file that cannot be had.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if isNoJob(err) || errors.Is(err, client.ErrNotFinished) || errors.Is(err, client.ErrOutputGone) {
		status = http.StatusNotFound
	}
	http.Error(w, plaintext.Line(s.config.Explain(err)), status)
}

// result sends a job's result as a file.
func (s *Server) result(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	result, err := s.config.Client.Result(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	asFile(w, r.PathValue("id")+".result")
	_, _ = w.Write(result) //nolint:gosec // a file, see asFile
}

// log sends all kept lines of a job's log as a file.
func (s *Server) log(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	log, err := s.config.Client.Log(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	asFile(w, r.PathValue("id")+".log")
	for _, l := range log.Lines {
		text := fmt.Sprintf("%s %d %s %s", l.At.UTC().Format(time.RFC3339Nano), l.Delivery, l.Source, l.Text)
		if l.LeftOut > 0 {
			text = fmt.Sprintf("… %s lines left out", overview.Number(l.LeftOut))
		}
		if _, err := fmt.Fprintln(w, plaintext.Line(text)); err != nil { // people read it in terminals
			return
		}
	}
}

// output sends a file that a job has stored.
func (s *Server) output(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readLimit)
	defer cancel()
	outputs, err := s.config.Client.Outputs(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, err)
		return
	}
	i := slices.IndexFunc(outputs, func(o client.Output) bool { return o.Path == r.URL.Query().Get("path") })
	if i < 0 {
		http.Error(w, "the job has no such output", http.StatusNotFound)
		return
	}
	content, err := s.config.Client.OpenOutput(r.Context(), outputs[i])
	if err != nil {
		s.fail(w, err)
		return
	}
	defer func() { _ = content.Close() }()
	asFile(w, path.Base(outputs[i].Path))
	w.Header().Set("Content-Length", strconv.FormatInt(outputs[i].Size, 10))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a file may be large
	_, _ = io.Copy(w, content)                                      // a content that differs ends short of its length
}
