package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// narrator prints the actions of clients, once for each: their first request of each
// kind, the events shown to them, their acknowledgements and mistakes.
type narrator struct {
	player *Player

	mu    sync.Mutex
	asked map[string]bool      // lines about what VMs ask for
	seen  map[string]bool      // lines about what VMs are shown, in this round
	shown map[string]time.Time // by VM and event, when it was shown first in this round
	wrong map[string]time.Time // by VM and problem, when it was printed last
}

// wrongAgain is how long a problem lasts before it is printed again.
const wrongAgain = time.Minute

func newNarrator(p *Player) *narrator {
	n := &narrator{player: p, asked: map[string]bool{}, wrong: map[string]time.Time{}}
	n.newRound()
	return n
}

// newRound forgets the events that were shown.
func (n *narrator) newRound() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen, n.shown = map[string]bool{}, map[string]time.Time{}
}

// observe prints the news in an answer.
func (n *narrator) observe(a imds.Answer) {
	for _, line := range n.lines(a) {
		n.player.report(line)
	}
	if len(a.Approved) > 0 {
		select {
		case n.player.changed <- struct{}{}:
		default:
		}
	}
}

func (n *narrator) lines(a imds.Answer) (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Faulty {
		return nil // the fault was printed when it began
	}
	if a.Status != http.StatusOK {
		return n.problem(a)
	}
	if line := a.VM + " " + asks(a.Request); !n.asked[line] {
		n.asked[line] = true
		lines = append(lines, line)
	}
	for _, e := range a.Shown {
		lines = append(lines, n.show(a, e)...)
	}
	for _, id := range a.Approved {
		lines = append(lines, n.approved(a, id))
	}
	return lines
}

// asks describes the purpose of a good request.
func asks(r imds.Request) string {
	switch {
	case r.Method == http.MethodPost:
		return "sends StartRequests, in version " + r.Version
	case r.Path == "/metadata/scheduledevents":
		return "asks for its events, in version " + r.Version
	case strings.HasPrefix(r.Path, "/metadata/instance"):
		return "asks what VM it is"
	case r.Path == "/metadata/versions":
		return "asks for the versions"
	default:
		return "gets a token"
	}
}

// show describes an event that is shown to a VM for the first time in its status.
func (n *narrator) show(a imds.Answer, e imds.Event) []string {
	line := fmt.Sprintf("%s is shown %s, %s", a.VM, n.player.nameOf(e.ID), e.Status)
	once := line + e.ID + e.NotBefore.String()
	if n.seen[once] {
		return nil
	}
	n.seen[once] = true
	key := a.VM + "/" + e.ID
	if _, before := n.shown[key]; !before {
		n.shown[key] = a.Sent
		line += fmt.Sprintf(", %s after it was announced", since(e.ScheduledAt, a.Sent))
	}
	return []string{line}
}

func (n *narrator) approved(a imds.Answer, id string) string {
	line := fmt.Sprintf("%s acknowledges %s", a.VM, n.player.nameOf(id))
	if first, ok := n.shown[a.VM+"/"+id]; ok {
		line += fmt.Sprintf(" %s after it was shown it", since(first, a.Sent))
	}
	e, _ := n.player.server.Event(id)
	switch {
	case e.Status == advised:
		return line + ", which has no effect on an advice"
	case e.StartedAt.Before(a.At):
		return line + ", which has started before"
	}
	return line + ": it is Started for " + strings.Join(e.Resources, ", ")
}

// problem describes a refused request, unless it did so within wrongAgain.
func (n *narrator) problem(a imds.Answer) []string {
	what := fmt.Sprintf("%s %s: %d", a.VM, a.Path, a.Status)
	if a.Problem != "" {
		what += ", " + a.Problem
	}
	if last, told := n.wrong[what]; told && a.Sent.Sub(last) < wrongAgain {
		return nil
	}
	n.wrong[what] = a.Sent
	return []string{what}
}

// since writes a time between two moments, to a tenth of a second.
func since(from, to time.Time) string { return fmt.Sprintf("%.1f s", to.Sub(from).Seconds()) }

// Summary returns a line for each VM that was asked about: how often, how close
// together, and how many requests were refused.
func (p *Player) Summary() (lines []string) {
	var names []string
	for _, vm := range p.scenario.VMs {
		names = append(names, vm.Name)
	}
	for _, step := range p.scenario.steps {
		if added, ok := step.action.(addVM); ok && !slices.Contains(names, added.vm.Name) {
			names = append(names, added.vm.Name)
		}
	}
	for _, name := range names {
		s := p.server.VM(name).Stats()
		if s.Requests+s.TokenRequests == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s sent %d requests, at most %d in a second; %d got 429. It sent %d for tokens; %d got 429.",
			name, s.Requests, s.BusiestSecond, s.Throttled, s.TokenRequests, s.TokensThrottled))
	}
	return lines
}
