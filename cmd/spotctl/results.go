package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// resultCommand prints the results of given jobs.
type resultCommand struct {
	IDs     []string      `arg:"" name:"id" help:"Ids of jobs."`
	Timeout time.Duration `help:"Longest time to read them; 0s is no limit." default:"10m" env:"-"`
}

// Help is shown by result --help.
func (*resultCommand) Help() string {
	return `One job's result is printed byte for byte, and on a terminal without control characters. Of
several jobs each gets a line: its id, a tab, and its result, JSON without line breaks and other
text with line breaks as \n.

The exit code is 1 if a job has no result; the others are printed nevertheless.`
}

func (c *resultCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	if len(c.IDs) == 1 && !s.printer.json {
		result, err := deployment.Result(ctx, c.IDs[0])
		if err != nil {
			return err
		}
		return s.printer.result(result)
	}
	report := endReport{printer: s.printer}
	for _, id := range c.IDs {
		result, err := deployment.Result(ctx, id)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := report.add(id, result, err); err != nil {
			return err
		}
	}
	return report.end()
}

// result prints a result: byte for byte, or on a terminal as text.
func (p *printer) result(result []byte) error {
	if !p.terminal || len(result) == 0 {
		return p.raw(result)
	}
	text := strings.TrimSuffix(string(result), "\n")
	if err := p.lines([]string{text}); err != nil {
		return err
	}
	if plaintext.Block(text) != text {
		p.note("characters that a terminal could take for a command were replaced; " +
			"a pipe or a file gets the result byte for byte")
	}
	return nil
}

// endReport prints the results of jobs, or why there is none, and counts the latter.
type endReport struct {
	printer *printer
	without int
}

// resultLine is a job's result, in the JSON output.
type resultLine struct {
	ID string `json:"id"`

	// Result is the result if it is JSON, and Text otherwise if it is text. Base64 has
	// all others.
	Result json.RawMessage `json:"result,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`

	Status client.Status `json:"status,omitempty"` // why there is no result
	Error  string        `json:"error,omitempty"`
}

// add prints a job's result, or why there is none. Its error is about the printing.
func (r *endReport) add(id string, result []byte, err error) error {
	if err != nil {
		r.without++
	}
	if r.printer.json {
		return r.printer.line(resultLineOf(id, result, err))
	}
	if err != nil {
		text := azure.Explain(err)
		if !strings.Contains(text, id) {
			text = "job " + id + ": " + text
		}
		r.printer.note("%s", plaintext.Line(text))
		return nil
	}
	return r.printer.raw([]byte(id + "\t" + cli.ResultField(result, r.printer.terminal) + "\n"))
}

// end returns the error to exit with.
func (r *endReport) end() error {
	if r.without > 0 {
		return fmt.Errorf("%d of the jobs have no result; see above", r.without)
	}
	return nil
}

func resultLineOf(id string, result []byte, err error) resultLine {
	l := resultLine{ID: id}
	var ended *client.EndedError
	switch {
	case errors.As(err, &ended):
		l.Status, l.Error = ended.Job.Status, ended.Error()
	case err != nil:
		l.Error = azure.Explain(err)
	case utf8.Valid(result) && json.Valid(result):
		l.Result = result
	case plaintext.Block(string(result)) == string(result):
		text := string(result)
		l.Text = &text
	default:
		l.Base64 = result
	}
	return l
}

// resultsCommand fetches the results of many jobs.
type resultsCommand struct {
	Kind    string        `help:"Only jobs of this kind." placeholder:"KIND" env:"-"`
	Group   string        `help:"Only jobs of this group." placeholder:"NAME" env:"-"`
	IDs     string        `name:"prefix-id" help:"Only jobs whose id starts with this." placeholder:"TEXT" env:"-"`
	Newer   time.Duration `help:"Only jobs that were done within this time, as in 24h." placeholder:"TIME" env:"-"`
	Dir     string        `help:"${about_results_dir}" placeholder:"FOLDER" type:"path" env:"-"`
	Timeout time.Duration `help:"Longest time to read them; 0s is no limit." default:"0s" env:"-"`
}

// Help is shown by results --help.
func (*resultsCommand) Help() string {
	return `Fetches the results of all jobs that are done, in no useful order: as lines of JSON, or
with --dir as files, byte for byte. A file that exists is written again, whole or not at all, so the
command may be repeated.

It costs one call for each 5,000 records of the deployment, and one for each result.`
}

func (c *resultsCommand) run(ctx context.Context, s *session) error {
	selected := selection{Status: []string{string(client.StatusDone)}, Kind: c.Kind, Group: c.Group, IDs: c.IDs, Newer: c.Newer}
	filter, has, err := selected.filter()
	if err != nil {
		return err
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o750); err != nil {
			return &cli.ConfigError{Err: fmt.Errorf("--dir: %w", err)}
		}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	n, skipped := 0, 0
	filter.Skipped = func(string) { skipped++ }
	filter.Select = has
	for r, err := range deployment.Results(ctx, filter) {
		if err != nil {
			return err
		}
		if err := c.store(s.printer, r); err != nil {
			return err
		}
		n++
	}
	s.printer.skipped(skipped)
	switch {
	case n == 0:
		return c.none(ctx, s, deployment)
	case c.Dir != "":
		s.printer.note("results written: %d, in %s", n, c.Dir)
	}
	return nil
}

// none is the end of a command that found no result.
func (c *resultsCommand) none(ctx context.Context, s *session, deployment *client.Client) error {
	if c.Group != "" {
		if _, err := deployment.Group(ctx, c.Group); err != nil {
			return err
		}
	}
	s.none(ctx, "no job with a result is selected", c.Kind)
	return nil
}

// store prints a result, or writes its file.
func (c *resultsCommand) store(p *printer, o client.Outcome) error {
	if c.Dir == "" {
		return p.line(resultLineOf(o.Job.ID, o.Result, nil))
	}
	return writeFile(filepath.Join(c.Dir, o.Job.ID), o.Result)
}

// writeFile writes a file whole or not at all.
func writeFile(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".result-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name()) // the error before is the one to report
	}
	return err
}

// outputsCommand lists and downloads the outputs of a job, or of a group.
type outputsCommand struct {
	ID      string        `arg:"" optional:"" help:"Id of the job; not with --group."`
	Paths   []string      `arg:"" optional:"" name:"path" help:"${about_outputs_paths}"`
	Group   string        `help:"With --to: those of all jobs of this group, each into a folder with its id." placeholder:"NAME" env:"-"`
	To      string        `help:"Download them into this folder." placeholder:"FOLDER" type:"path" env:"-"`
	Partial bool          `help:"Also of a job that is not done: those of its last checkpoint." env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"0s" env:"-"`
}

// Help is shown by outputs --help.
func (*outputsCommand) Help() string {
	return `Lists the files that a job has stored for others, or downloads them with --to. A job that
is not done has a part of them at best: with --partial these are the ones that belong to its last
checkpoint. Of a group, jobs that are not done are left out and counted.

A file is written whole or not at all, and checked by its hash. One that is there with the same
content is left as it is, another one is replaced; so the command may be repeated, and continues
inside of files that were begun. Nothing is written outside of the folder.

Exit codes: 0 done, 1 the job is not done (without --partial), has no such output, or it could not
be read, 78 wrong flags.`
}

func (c *outputsCommand) run(ctx context.Context, s *session) error {
	switch {
	case c.Group == "" && c.ID == "":
		return &cli.ConfigError{Err: errors.New("give the id of a job, or --group and --to")}
	case c.Group != "" && c.To == "":
		return &cli.ConfigError{Err: errors.New("--group is for downloads: give --to FOLDER too")}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Group != "" {
		return c.downloadGroup(ctx, s, deployment)
	}
	if err := c.checkDone(ctx, s.printer, deployment); err != nil {
		return err
	}
	if c.To != "" {
		return c.download(ctx, s.printer, deployment)
	}
	all, err := deployment.Outputs(ctx, c.ID)
	if err != nil {
		return err
	}
	selected := slices.DeleteFunc(all, func(o client.Output) bool { return !c.selects(o) })
	if len(selected) == 0 {
		return c.none(s.printer)
	}
	return s.printer.outputs(selected)
}

// checkDone refuses a job that is not done, or notes that. It comes before the outputs are
// read: a job that is done stays so.
func (c *outputsCommand) checkDone(ctx context.Context, p *printer, deployment *client.Client) error {
	j, err := deployment.Get(ctx, c.ID)
	switch {
	case err != nil || j.Status == client.StatusDone:
		return err
	case !c.Partial:
		return fmt.Errorf("job %s is %s: its outputs are complete once it is done; --partial is for the %d of its last checkpoint", c.ID,
			j.Status, j.OutputFiles)
	}
	p.note("job %s is %s: these are the outputs of its last checkpoint", c.ID, j.Status)
	return nil
}

// selects reports whether an output was asked for.
func (c *outputsCommand) selects(o client.Output) bool {
	return len(c.Paths) == 0 || slices.ContainsFunc(c.Paths, func(path string) bool {
		return o.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(o.Path, path)
	})
}

// none is the end of a command that found no output.
func (c *outputsCommand) none(p *printer) error {
	if len(c.Paths) > 0 {
		return fmt.Errorf("job %s has no such output: spotctl outputs %s lists those that it has", c.ID, c.ID)
	}
	p.note("job %s has no outputs", c.ID)
	return nil
}

// downloaded counts what was downloaded.
type downloaded struct{ files, bytes atomic.Int64 }

// fetch downloads the selected outputs of a job into a folder, and returns their number.
func (c *outputsCommand) fetch(ctx context.Context, deployment *client.Client, id, folder string, all *downloaded) (selected int,
	err error) {
	selected, err = deployment.Download(ctx, id, folder, client.DownloadOptions{
		Select: c.selects,
		Done: func(_ client.Output, n int64) {
			if all.files.Add(1); n > 0 {
				all.bytes.Add(n)
			}
		},
	})
	if err != nil {
		return 0, fmt.Errorf("%w; files written: %d, and the command can be repeated", err, all.files.Load())
	}
	return selected, nil
}

func (c *outputsCommand) download(ctx context.Context, p *printer, deployment *client.Client) error {
	var all downloaded
	selected, err := c.fetch(ctx, deployment, c.ID, c.To, &all)
	if err != nil {
		return err
	}
	if selected == 0 {
		return c.none(p)
	}
	p.note("outputs written: %d, in %s; %s fetched", selected, c.To, detail.Size(all.bytes.Load()))
	return nil
}

// downloadGroup downloads the outputs of the jobs of a group.
func (c *outputsCommand) downloadGroup(ctx context.Context, s *session, deployment *client.Client) error {
	if c.ID != "" { // without a job, all arguments are paths
		c.Paths = append([]string{c.ID}, c.Paths...)
	}
	jobs, err := s.find(ctx, deployment, &selection{Group: c.Group})
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		_, err := deployment.Group(ctx, c.Group) // says that there is none
		return err
	}
	var all downloaded
	selected, of, left := 0, 0, 0
	for _, j := range jobs {
		switch {
		case j.Status != client.StatusDone && !c.Partial:
			left++
			continue
		case j.OutputFiles == 0:
			continue
		}
		n, err := c.fetch(ctx, deployment, j.ID, filepath.Join(c.To, j.ID), &all)
		if err != nil {
			return fmt.Errorf("job %s: %w", j.ID, err)
		}
		if selected += n; n > 0 {
			of++
		}
	}
	s.printer.note("outputs written: %d, of %d jobs, in %s; %s fetched", selected, of, c.To, detail.Size(all.bytes.Load()))
	if left > 0 {
		s.printer.note("left out: %d jobs that are not done (--partial downloads what their last checkpoints have)", left)
	}
	return nil
}

// outputs prints the outputs of a job.
func (p *printer) outputs(all []client.Output) error {
	if p.json {
		for _, o := range all {
			if err := p.line(o); err != nil {
				return err
			}
		}
		return nil
	}
	t, total := p.table(), int64(0)
	fmt.Fprintf(t, "SIZE\tSHA-256\tPATH\n")
	for _, o := range all {
		fmt.Fprintf(t, "%d\t%s\t%s\n", o.Size, o.SHA256[:min(len(o.SHA256), 12)], plaintext.Line(o.Path))
		total += o.Size
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.note("%d outputs, %s; --to FOLDER downloads them", len(all), detail.Size(total))
	return nil
}
