// Package givenup groups dead-lettered jobs by their kind and reason.
package givenup

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
)

// Group counts the dead-lettered jobs of one kind with one reason.
type Group struct {
	Kind     string    `json:"kind,omitempty"`
	Reason   string    `json:"reason"` // with placeholders for the differences
	Messages int       `json:"messages"`
	Workers  int       `json:"workers"` // that gave them up
	Example  string    `json:"example"` // id of the job, or of the message, that was dead-lettered last
	First    time.Time `json:"first"`   // when a job of the group was dead-lettered
	Last     time.Time `json:"last"`

	// IDs are the ids of the jobs, without messages whose job is not known.
	IDs []string `json:"-"`
}

// varying matches what differs between two occurrences of one reason, and unchanging
// what takes its place.
var varying = []struct {
	pattern    *regexp.Regexp
	unchanging string
}{
	{regexp.MustCompile(`"[^"]*"`), `"…"`},
	{regexp.MustCompile(`'[^']*'`), `'…'`},
	{regexp.MustCompile(`https?://\S+`), "URL"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b`), "ID"},
	{regexp.MustCompile(`(/[^\s:,;)]+){2,}`), "PATH"},
	{regexp.MustCompile(`[^\s/:;,"']+\.[A-Za-z][A-Za-z0-9]{1,4}\b`), "FILE"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{16,}\b`), "ID"},
	{regexp.MustCompile(`\d+(\.\d+)?`), "N"},
}

// Common returns a reason without what differs from job to job.
func Common(reason string) string {
	for _, v := range varying {
		reason = v.pattern.ReplaceAllString(reason, v.unchanging)
	}
	return reason
}

// Summarize counts messages by kind and reason, the most frequent first.
func Summarize(messages []client.PoisonMessage) []Group {
	type key struct{ kind, reason string }
	groups := map[key]*Group{}
	workers := map[key]map[string]bool{}
	for _, m := range messages {
		reason, at, example := m.Reason, m.GivenUpAt, cmp.Or(m.JobID, m.MessageID)
		if m.Err != nil {
			reason, at = m.Err.Error(), m.InsertedAt
		}
		k := key{m.Kind, Common(reason)}
		g := groups[k]
		if g == nil {
			g = &Group{Kind: m.Kind, Reason: k.reason, First: at.UTC(), Last: at.UTC(), Example: example}
			groups[k], workers[k] = g, map[string]bool{}
		}
		g.Messages++
		if m.JobID != "" {
			g.IDs = append(g.IDs, m.JobID)
		}
		workers[k][m.Worker] = true
		g.Workers = len(workers[k])
		if at.Before(g.First) {
			g.First = at.UTC()
		}
		if at.After(g.Last) {
			g.Last, g.Example = at.UTC(), example
		}
	}
	var all []Group
	for _, g := range groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
