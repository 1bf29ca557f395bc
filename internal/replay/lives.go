package replay

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/text/charset"
)

//go:embed lives/*.csv
var recorded embed.FS

// Names of synthetic lives. All have [Fleet.Rate] evictions per hour of a VM.
const (
	Poisson  = "poisson"  // at random times
	Constant = "constant" // each VM lives equally long
	Bursts   = "bursts"   // each burst takes every VM with a probability of one half
)

// Recorded are the names of the recorded lives, with their source in the file of that name.
var Recorded = []string{"gcp-2019", "aws-p3", "aws-g4dn"}

// Sources returns the names of all lives that need no file.
func Sources() []string { return append([]string{Poisson, Constant, Bursts}, Recorded...) }

// life is a VM's time. It takes work from ready until seen, and is gone at end.
type life struct {
	from  time.Duration // paid from
	ready time.Duration // its worker takes work; may be after end
	told  time.Duration // its end is announced; end without a notice
	seen  time.Duration // its worker sees the notice; end without a notice in time
	end   time.Duration
}

// warned reports whether the worker sees a notice.
func (l life) warned() bool { return l.seen < l.end }

// lives is a source of lives: lengths to draw from, or the lives of a whole fleet.
type lives struct {
	lengths []time.Duration
	lanes   [][]life // from and end alone
	lasts   time.Duration
}

// isDrawn reports whether lives are drawn by the fleet's rate.
func isDrawn(name string) bool { return name == Poisson || name == Constant || name == Bursts }

// IsDrawn reports whether the fleet's lives are drawn by its rate, and not recorded.
func (f Fleet) IsDrawn() bool { return isDrawn(f.Lives) }

// readLives reads recorded lives: by name, else from the file of that name.
func readLives(name string) (lives, error) {
	if slices.Contains(Recorded, name) {
		file, err := recorded.Open("lives/" + name + ".csv")
		if err != nil {
			return lives{}, err
		}
		defer file.Close()
		return parseLives(file)
	}
	file, err := os.Open(name)
	if err != nil {
		return lives{}, fmt.Errorf("lives %q: neither a name (%s) nor a file that can be read: %w", name, strings.Join(Sources(), ", "), err)
	}
	defer file.Close()
	l, err := parseLives(file)
	if err != nil {
		return lives{}, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// errLine is the error of a line that says nothing about lives.
const errLine = "line %d, %.40q: want a lifetime in seconds, or MILLISECONDS,add,NAME or MILLISECONDS,remove,NAME"

// longest bounds a recorded time, so that no sum overflows.
const longest = 10 * 365 * 24 * time.Hour

// parseLives reads one lifetime in seconds a line, or one change of a fleet a line:
// milliseconds since the start, add or remove, name of a VM. Lines that begin with # are
// comments.
func parseLives(from io.Reader) (lives, error) {
	var l lives
	var changes []change
	lines := bufio.NewScanner(charset.Reader(from))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		c, ok := parseLine(text)
		switch {
		case !ok:
			return l, fmt.Errorf(errLine, n, text)
		case c.name == "":
			l.lengths = append(l.lengths, max(c.at, time.Second))
		default:
			changes = append(changes, c)
		}
	}
	if err := lines.Err(); err != nil {
		return l, err
	}
	switch {
	case len(changes) > 0 && len(l.lengths) > 0:
		return l, fmt.Errorf("it has both lifetimes and changes of a fleet: keep one of them")
	case len(changes) == 0 && len(l.lengths) == 0:
		return l, fmt.Errorf("it has no lives: give a lifetime in seconds on each line")
	case len(changes) > 0:
		return fleetOf(changes)
	}
	return l, nil
}

// parseLine reads a lifetime, which has no name, or a change of a fleet.
func parseLine(text string) (c change, ok bool) {
	parts, unit := strings.Split(text, ","), time.Second
	if len(parts) == 3 {
		unit = time.Millisecond
	}
	number, err := strconv.ParseFloat(parts[0], 64)
	if err != nil || !(number >= 0 && number <= float64(longest/unit)) {
		return c, false
	}
	c.at = time.Duration(number * float64(unit))
	switch {
	case len(parts) == 1:
		return c, true
	case len(parts) != 3 || parts[2] == "":
		return c, false
	}
	c.name, c.gone = parts[2], parts[1] == "remove"
	return c, c.gone || parts[1] == "add"
}

// change is a VM that comes or goes.
type change struct {
	at   time.Duration
	name string
	gone bool
}

// fleetOf puts the VMs of a recorded fleet into as few lanes as hold them.
func fleetOf(changes []change) (lives, error) {
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	l := lives{lasts: changes[len(changes)-1].at}
	laneOf, free := map[string]int{}, []int(nil)
	for _, c := range changes {
		lane, known := laneOf[c.name]
		switch {
		case c.gone != known:
			return l, fmt.Errorf("VM %.40q at %s: it is added while it lives, or removed while it does not", c.name, c.at)
		case c.gone:
			l.lanes[lane][len(l.lanes[lane])-1].end = c.at
			delete(laneOf, c.name)
			free = append(free, lane)
			continue
		case len(free) > 0:
			lane = slices.Min(free)
			free = slices.DeleteFunc(free, func(n int) bool { return n == lane })
		default:
			lane, l.lanes = len(l.lanes), append(l.lanes, nil)
		}
		laneOf[c.name] = lane
		l.lanes[lane] = append(l.lanes[lane], life{from: c.at, end: longest})
	}
	return l, nil
}

// draw returns the lives of each VM of the fleet until the horizon. A VM of drawn lives is
// replaced at once.
func (f Fleet) draw(horizon time.Duration, random *rand.Rand) ([][]life, error) {
	all, err := f.drawSpot(horizon, random)
	if err != nil {
		return nil, err
	}
	for _, lane := range all {
		for i := range lane {
			lane[i].ready = lane[i].from + f.Boot.Duration
			lane[i].told, lane[i].seen = f.notice(lane[i].end, random)
		}
	}
	for range f.Fixed {
		all = append(all, []life{{ready: f.Boot.Duration, told: longest, seen: longest, end: longest}})
	}
	return all, nil
}

// drawSpot returns when the VMs that are not regular come and go.
func (f Fleet) drawSpot(horizon time.Duration, random *rand.Rand) ([][]life, error) {
	mean := time.Duration(float64(time.Hour) / f.Rate)
	switch {
	case isDrawn(f.Lives) && f.VMs == 0:
		return nil, errors.New("0 VMs: give a number")
	case f.Lives == Bursts:
		return f.bursts(horizon, random), nil
	case f.Lives == Poisson:
		return renewed(f.VMs, horizon, func(bool) time.Duration { return time.Duration(random.ExpFloat64() * float64(mean)) }), nil
	case f.Lives == Constant:
		return renewed(f.VMs, horizon, func(first bool) time.Duration {
			if first { // VMs did not start together
				return time.Duration(random.Float64() * float64(mean))
			}
			return mean
		}), nil
	}
	return f.recorded(horizon, random)
}

// recorded returns when VMs come and go as lives are recorded: single ones in random order, or a fleet.
func (f Fleet) recorded(horizon time.Duration, random *rand.Rand) ([][]life, error) {
	l, err := readLives(f.Lives)
	switch {
	case err != nil:
		return nil, err
	case l.lanes == nil && f.VMs == 0:
		return nil, fmt.Errorf("lives %q are single VMs: give a number of VMs", f.Lives)
	case l.lanes == nil:
		return renewed(f.VMs, horizon, func(bool) time.Duration { return l.lengths[random.IntN(len(l.lengths))] }), nil
	case horizon > l.lasts:
		return nil, fmt.Errorf("lives %q are recorded for %s: give at most that time to replay", f.Lives, l.lasts.Truncate(time.Second))
	case f.VMs > len(l.lanes):
		return nil, fmt.Errorf("lives %q have at most %d VMs at a time: give no more", f.Lives, len(l.lanes))
	case f.VMs > 0:
		l.lanes = l.lanes[:f.VMs]
	}
	return l.lanes, nil
}

// renewed lets each VM be followed by another one until the horizon.
func renewed(vms int, horizon time.Duration, length func(first bool) time.Duration) [][]life {
	all := make([][]life, vms)
	for lane := range all {
		for at := time.Duration(0); at < horizon; {
			end := at + max(length(at == 0), time.Second)
			all[lane] = append(all[lane], life{from: at, end: end})
			at = end
		}
	}
	return all
}

// bursts lets half of the VMs end together.
func (f Fleet) bursts(horizon time.Duration, random *rand.Rand) [][]life {
	const share = 0.5
	mean := float64(time.Hour) / f.Rate * share
	all := make([][]life, f.VMs)
	from := make([]time.Duration, f.VMs)
	for at := time.Duration(0); at < horizon; {
		at += max(time.Duration(random.ExpFloat64()*mean), time.Second)
		for lane := range all {
			if random.Float64() < share {
				all[lane], from[lane] = append(all[lane], life{from: from[lane], end: at}), at
			}
		}
	}
	for lane := range all {
		all[lane] = append(all[lane], life{from: from[lane], end: longest})
	}
	return all
}

// Lengths of notices.
const (
	fullNotice  = 30 * time.Second // Azure documents at least 30 s for Preempt
	shortNotice = 10 * time.Second // VMs have stopped less than 10 s after the notice
)

// notice draws when the end of a VM is announced, and when its worker sees the notice: within a
// second after that, since it polls every second.
func (f Fleet) notice(end time.Duration, random *rand.Rand) (told, seen time.Duration) {
	kind, length, poll := random.Float64(), random.Float64(), random.Float64()
	before := time.Duration(0)
	switch {
	case kind < f.Full:
		before = fullNotice
	case kind < f.Full+f.Short:
		before = time.Duration(length * float64(shortNotice))
	}
	told = max(0, end-before)
	return told, min(end, told+time.Duration(poll*float64(time.Second)))
}
