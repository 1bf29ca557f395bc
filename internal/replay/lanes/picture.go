package lanes

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

var (
	//go:embed picture.svg
	pictureText string
	//go:embed story.html
	storyText string

	pictureTemplate = Template("picture", pictureText)
	storyTemplate   = Template("story", `{{define "picture"}}`+pictureText+`{{end}}`+storyText)
)

// SVG writes the picture of a story: an image without scripts. It shows all of the run, then
// plays it a few times and shows all of it again. Jobs have numbers instead of names.
func (s Story) SVG(to io.Writer) error {
	s.Jobs = slices.Clone(s.Jobs)
	for n := range s.Jobs {
		s.Jobs[n].Name = fmt.Sprintf("job %d", n+1)
	}
	return pictureTemplate.Execute(to, s.picture(true))
}

// Page writes a page with the picture, each job, and the promises. It loads nothing.
func (s Story) Page(to io.Writer) error {
	return storyTemplate.Execute(to, struct {
		Story

		Picture picture
		Rows    []Track
		Axis    []string
	}{s, s.picture(false), s.rows(), s.axis(s.every(5))})
}

// scale is the time of the whole picture.
func (s Story) scale() Scale { return Scale(max(s.Took, time.Second)) }

// run draws a run: its time, its lost part, its saves, and the work of a thawed worker.
func (s Story) run(r Run, colour, with string) []Bar {
	scale := s.scale()
	title := fmt.Sprintf("%s, %s to %s, %s, %s", with, brief(r.From), brief(r.To), words[r.End], plural(len(r.Saves), "save"))
	bars := []Bar{scale.Box("run "+colour, r.From, r.To, title)}
	if r.Lost > 0 {
		bars = append(bars, scale.Box("lost", r.To-r.Lost, r.To, title+"; the last "+brief(r.Lost)+" lost"))
	}
	if r.StaleTo > r.StaleFrom {
		bars = append(bars, scale.Box("lost", r.StaleFrom, r.StaleTo, with+": writes refused after the freeze"))
	}
	var saves strings.Builder
	for _, at := range r.Saves {
		fmt.Fprintf(&saves, "M%s 12v5", scale.X(at))
	}
	if saves.Len() > 0 {
		bars = append(bars, Bar{Class: "saved", Marks: saves.String()})
	}
	return bars
}

// rows are the jobs, each with the VMs in colours.
func (s Story) rows() []Track {
	var rows []Track
	for _, job := range s.Jobs {
		outcome := "not done"
		end := s.Took
		if job.Done > 0 {
			end, outcome = job.Done, "done at "+brief(job.Done)
		}
		row := Track{Name: job.Name, Label: fmt.Sprintf("%s: %s, %s", job.Name, plural(len(job.Runs), "run"), outcome)}
		row.Bars = append(row.Bars, s.scale().Box("waits", 0, end, job.Name+" waits where it does not run"))
		for _, run := range job.Runs {
			row.Bars = append(row.Bars, s.run(run, colour(run.VM), "on "+s.VMs[run.VM].Name)...)
			switch run.End {
			case Released:
				row.Bars = append(row.Bars, s.scale().Mark("notice", run.To, ""))
			case Died:
				row.Bars = append(row.Bars, s.scale().Mark("death", run.To, ""))
			case Fell:
				row.Bars = append(row.Bars, s.scale().Mark("freeze", run.To, ""))
			case Running, Committed, Left:
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func colour(n int) string { return fmt.Sprintf("c%d", n%Colours) }

// brief writes a time since the start.
func brief(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// every is the time between two times of an axis with at most so many parts.
func (s Story) every(parts int) time.Duration {
	took := time.Duration(s.scale())
	for unit := time.Second; ; unit *= 10 {
		for _, step := range []time.Duration{unit, 2 * unit, 5 * unit} {
			if took <= step*time.Duration(parts) {
				return step
			}
		}
	}
}

// axis are the times of the rows' axis, from the start to the end.
func (s Story) axis(every time.Duration) []string {
	var texts []string
	for at := time.Duration(0); at < time.Duration(s.scale())-every/2; at += every {
		texts = append(texts, brief(at))
	}
	return append(texts, brief(s.Took))
}
