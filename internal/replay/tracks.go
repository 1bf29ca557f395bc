package replay

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// tracks draws a row for each VM and each job.
func (p *picture) tracks() (vms, jobs []lanes.Track) {
	vms = make([]lanes.Track, min(len(p.lanes), drawnLanes))
	for lane := range vms {
		vms[lane].Name = fmt.Sprintf("vm-%d", lane+1)
		if lane >= p.spot {
			vms[lane].Name = fmt.Sprintf("regular-%d", lane-p.spot+1)
		}
		for _, l := range p.lanes[lane] {
			if l.from < p.until {
				vms[lane].Bars = append(vms[lane].Bars, p.alive(l)...)
			}
		}
	}
	jobs = make([]lanes.Track, min(len(p.tasks), drawnJobs))
	for n := range jobs {
		jobs[n].Name = fmt.Sprintf("job-%d", n+1)
		t := p.tasks[n]
		end := p.until
		if t.done > 0 {
			end = t.done
		}
		if t.put < end {
			jobs[n].Bars = append(jobs[n].Bars, p.scale().Box("waits", t.put, end, fmt.Sprintf("%s waits where it does not run", jobs[n].Name)))
		}
		jobs[n].Label = fmt.Sprintf("%s: put at %s, %s, not done", jobs[n].Name, Brief(t.put), plural(t.runs, "run"))
		if t.done > 0 {
			jobs[n].Label = fmt.Sprintf("%s: put at %s, %s, done at %s", jobs[n].Name, Brief(t.put), plural(t.runs, "run"), Brief(t.done))
		}
	}
	runs := make([]int, len(vms))
	for _, a := range p.attempts {
		if a.lane < len(vms) {
			runs[a.lane]++
			vms[a.lane].Bars = append(vms[a.lane].Bars, p.attempt(a, a.job%lanes.Colours, fmt.Sprintf("job-%d", a.job+1))...)
		}
		if a.job < len(jobs) {
			jobs[a.job].Bars = append(jobs[a.job].Bars, p.attempt(a, a.lane%lanes.Colours, "on vm-"+fmt.Sprint(a.lane+1))...)
		}
	}
	for lane := range vms {
		turns := plural(lived(p.lanes[lane], p.until), "VM")
		vms[lane].Label = fmt.Sprintf("%s: %s in a row, %s", vms[lane].Name, turns, plural(runs[lane], "run"))
	}
	return vms, jobs
}

// lived counts the lives that began before a moment.
func lived(lives []life, until time.Duration) (n int) {
	for _, l := range lives {
		if l.from < until {
			n++
		}
	}
	return n
}

// scale is the time of the tracks.
func (p *picture) scale() lanes.Scale { return lanes.Scale(p.until) }

// alive draws a life: its boot, its time, its notice, its end.
func (p *picture) alive(l life) []lanes.Bar {
	gone := min(l.end, p.until)
	bars := []lanes.Bar{p.scale().Box("life", l.from, gone, fmt.Sprintf("VM from %s to %s", Brief(l.from), Brief(gone)))}
	if l.ready > l.from {
		bars = append(bars, p.scale().Box("boot", l.from, min(l.ready, gone), "boots"))
	}
	switch {
	case l.end > p.until:
	case l.warned():
		bars = append(bars, p.scale().Mark("notice", l.seen, "evicted with a notice at "+Brief(l.seen)))
	default:
		bars = append(bars, p.scale().Mark("death", l.end, "gone without a notice at "+Brief(l.end)))
	}
	return bars
}

// endings are the words for ends of runs.
var endings = map[End]string{
	Cut: "still running", Done: "done", Released: "released after a notice", Died: "lost with its VM",
}

// attempt draws a run: its time, the part that was lost, and its saves.
func (p *picture) attempt(a drawn, colour int, with string) []lanes.Bar {
	title := fmt.Sprintf("%s, %s to %s, %s; %s", with, Brief(a.from), Brief(a.to), endings[a.end], plural(a.saves, "save"))
	if a.redone > 0 {
		title += "; " + Brief(a.redone) + " redone"
	}
	bars := []lanes.Bar{p.scale().Box(fmt.Sprintf("run c%d", colour), a.from, a.to, title)}
	if a.redone > 0 {
		bars = append(bars, p.scale().Box("lost", max(a.from, a.to-a.redone), a.to, title))
	}
	saves := len(a.marks)
	if a.end == Released {
		saves++ // the last one, which the notice's mark shows
	}
	if len(a.marks) > 0 && a.saves == saves {
		var path strings.Builder
		for _, at := range a.marks {
			fmt.Fprintf(&path, "M%s 13v4", p.scale().X(at))
		}
		bars = append(bars, lanes.Bar{Class: "saved", Marks: path.String()})
	}
	switch a.end {
	case Released:
		bars = append(bars, p.scale().Mark("notice", a.to, ""))
	case Died:
		bars = append(bars, p.scale().Mark("death", a.to, ""))
	case Cut, Done:
	}
	return bars
}

// axis are the times below the tracks.
func axis(until time.Duration) []string {
	var texts []string
	for i := range 5 {
		texts = append(texts, Brief((until * time.Duration(i) / 4).Round(until/400)))
	}
	return texts
}

// buckets is how many bars the goodput over time has.
const buckets = 60

// goodput draws the useful share of the running time in each bucket. Work is useful in the
// bucket in which it was done.
func (p *picture) goodput() (bars []lanes.Bar, text string) {
	var useful, running [buckets]float64
	width := float64(p.until) / buckets
	add := func(to *[buckets]float64, from, until time.Duration) {
		for i := int(float64(from) / width); i < buckets && float64(i)*width < float64(until); i++ {
			to[i] += math.Max(0, math.Min(float64(until), float64(i+1)*width)-math.Max(float64(from), float64(i)*width))
		}
	}
	for _, a := range p.attempts {
		add(&running, a.from, a.to)
		add(&useful, a.works, a.to-a.redone-a.saving)
	}
	least := 100.0
	for i := range buckets {
		if running[i] == 0 {
			continue
		}
		share := math.Min(100, 100*useful[i]/running[i])
		least = math.Min(least, share)
		bars = append(bars, lanes.Bar{
			Class: "useful", X: fmt.Sprintf("%.2f", float64(i)*lanes.Width/buckets+1), W: fmt.Sprintf("%.2f", float64(lanes.Width)/buckets-2),
			Y: fmt.Sprintf("%.2f", 100-share), H: fmt.Sprintf("%.2f", share),
			Title: fmt.Sprintf("%s to %s: %.1f %%", Brief(time.Duration(float64(i)*width)), Brief(time.Duration(float64(i+1)*width)), share),
		})
	}
	return bars, fmt.Sprintf("Goodput while running in %d equal parts of the time, %.1f %% at least", buckets, least)
}

// histogram draws how long runs took to resume.
func histogram(name, class string, delays []time.Duration) series {
	s := series{Name: name, Class: class, Label: "No run was ended " + name}
	if len(delays) == 0 {
		return s
	}
	const bins = 40
	top := max(delays[min(len(delays)-1, len(delays)*99/100)], time.Second)
	var counts [bins]int
	most := 0
	for _, d := range delays {
		bin := min(bins-1, int(float64(d)/float64(top)*(bins-1)))
		counts[bin]++
		most = max(most, counts[bin])
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		high := 100 * float64(n) / float64(most)
		from := time.Duration(float64(top) * float64(i) / (bins - 1))
		s.Bars = append(s.Bars, lanes.Bar{
			Class: class, X: fmt.Sprintf("%.2f", float64(i)*lanes.Width/bins+1), W: fmt.Sprintf("%.2f", float64(lanes.Width)/bins-2),
			Y: fmt.Sprintf("%.2f", 100-high), H: fmt.Sprintf("%.2f", high), Title: fmt.Sprintf("about %s: %s", Brief(from), plural(n, "run")),
		})
	}
	s.To = Brief(top) + " or more"
	s.Label = fmt.Sprintf("Time until %s ran again %s, up to %s", plural(len(delays), "run"), name, Brief(delays[len(delays)-1]))
	return s
}
