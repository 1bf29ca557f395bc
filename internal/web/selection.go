package web

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
)

// selection is which jobs a page lists, and in which order. It is in the page's address.
type selection struct {
	Status []string
	Kind   string
	Group  string
	Worker string
	Text   string // a part of the id
	Newer  string // least or greatest time since the record was written, as in 15m
	Older  string
	Sort   string
	Up     bool // reversed
}

// latestFirst is the order of jobs without another one.
const latestFirst = "written"

// selectionOf reads the selection of an address. Values that mean nothing are left out.
func selectionOf(q url.Values) selection {
	s := selection{Kind: q.Get("kind"), Group: q.Get("group"), Worker: q.Get("worker"), Text: strings.TrimSpace(q.Get("id")),
		Sort: q.Get("sort"), Up: q.Get("reverse") == "1"}
	for _, status := range overview.Statuses {
		if slices.Contains(q["status"], string(status)) {
			s.Status = append(s.Status, string(status))
		}
	}
	if overview.Orders[s.Sort] == nil {
		s.Sort = latestFirst
	}
	for _, age := range []struct {
		name string
		to   *string
	}{{"newer", &s.Newer}, {"older", &s.Older}} {
		if d, err := time.ParseDuration(q.Get(age.name)); err == nil && d > 0 {
			*age.to = q.Get(age.name)
		}
	}
	return s
}

// CancelAddress returns the address of the question whether to cancel the jobs.
func (s selection) CancelAddress() string {
	q := s.query()
	q.Set("do", "cancel-selected")
	return "/change?" + q.Encode()
}

// addressOfJobs returns the address of the jobs of a kind, with a status if one is given.
func addressOfJobs(kind string, status ...string) string {
	return selection{Kind: kind, Status: status, Sort: latestFirst}.Address()
}

// Address returns the address of the page of the selection.
func (s selection) Address() string {
	if q := s.query(); len(q) > 0 {
		return "/jobs?" + q.Encode()
	}
	return "/jobs"
}

func (s selection) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"kind": s.Kind, "group": s.Group, "worker": s.Worker, "id": s.Text, "newer": s.Newer,
		"older": s.Older} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, status := range s.Status {
		q.Add("status", status)
	}
	if s.Sort != latestFirst {
		q.Set("sort", s.Sort)
	}
	if s.Up {
		q.Set("reverse", "1")
	}
	return q
}

// SortBy returns the address of the same jobs in another order, or in the reverse one.
func (s selection) SortBy(order string) string {
	s.Up = s.Sort == order && !s.Up
	s.Sort = order
	return s.Address()
}

// Rows returns the address of the rows of the selection.
func (s selection) Rows() string { return "/rows?" + s.query().Encode() }

// Has reports whether jobs with the status are selected by it.
func (s selection) Has(status client.Status) bool { return slices.Contains(s.Status, string(status)) }

// IsNarrow reports whether anything narrows the selection.
func (s selection) IsNarrow() bool {
	s.Sort, s.Up = latestFirst, false
	return len(s.query()) > 0
}

// narrow returns a function that reports whether a job is selected, whatever its status is.
func (s selection) narrow() func(*client.Job) bool {
	newer, _ := time.ParseDuration(s.Newer) // 0 for none
	older, _ := time.ParseDuration(s.Older)
	is := func(wanted, value string) bool { return wanted == "" || wanted == value }
	return func(j *client.Job) bool {
		return is(s.Kind, j.Kind) && is(s.Group, j.Group) && is(s.Worker, j.Owner) && strings.Contains(j.ID, s.Text) &&
			(newer == 0 || j.Age() <= newer) && j.Age() >= older
	}
}

// has returns a function that reports whether a job is selected.
func (s selection) has() func(client.Job) bool {
	narrow := s.narrow()
	return func(j client.Job) bool { return (len(s.Status) == 0 || s.Has(j.Status)) && narrow(&j) }
}

// of returns the selected jobs in their order. The status does not narrow counts.
func (s selection) of(jobs []client.Job) (selected []*client.Job, counts map[client.Status]int) {
	counts = map[client.Status]int{}
	has := s.narrow()
	for i := range jobs {
		j := &jobs[i]
		if !has(j) {
			continue
		}
		counts[j.Status]++
		if len(s.Status) == 0 || s.Has(j.Status) {
			selected = append(selected, j)
		}
	}
	slices.SortFunc(selected, overview.Orders[s.Sort])
	if s.Up {
		slices.Reverse(selected)
	}
	return selected, counts
}

// selected is a selection of a state.
type selected struct {
	key    string
	state  *state
	jobs   []*client.Job
	counts map[client.Status]int
}

// selections keeps the last selections, for the windows of rows that a page asks for.
type selections struct {
	mu   sync.Mutex
	last []*selected
}

// mostSelections is how many are kept.
const mostSelections = 4

func (c *selections) of(s selection, at *state) *selected {
	key := s.query().Encode()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, found := range c.last {
		if found.key == key && found.state == at {
			return found
		}
	}
	found := &selected{key: key, state: at}
	found.jobs, found.counts = s.of(at.jobs)
	c.last = append([]*selected{found}, slices.DeleteFunc(c.last, func(old *selected) bool { return old.state != at })...)
	c.last = c.last[:min(len(c.last), mostSelections)]
	return found
}
