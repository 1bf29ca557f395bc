package checkpoint

import (
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/jobid"
)

// FollowUps names the first follow-up jobs that a job has put: at most maxFollowUps ids with
// commas between them, then moreFollowUps if there are more. It decides nothing.
type FollowUps string

const (
	maxFollowUps  = 8
	moreFollowUps = "*"
)

// IDs returns the ids, and whether the job has put more jobs. Text that is no id is left out.
func (f FollowUps) IDs() (ids []string, more bool) {
	for part := range strings.SplitSeq(string(f), ",") {
		if part == moreFollowUps {
			return ids, true
		}
		if jobid.Validate(part) == nil {
			ids = append(ids, part)
		}
	}
	return ids, false
}

// With returns the names together with the names of more follow-up jobs. A job that is
// put again by another run of the handler is named once.
func (f FollowUps) With(put FollowUps) FollowUps {
	for next := range strings.SplitSeq(string(put), ",") {
		named := strings.Split(string(f), ",")
		switch {
		case next == "" || slices.Contains(named, next) || slices.Contains(named, moreFollowUps):
		case f == "":
			f = FollowUps(next)
		case len(named) >= maxFollowUps:
			f += "," + moreFollowUps
		default:
			f += FollowUps("," + next)
		}
	}
	return f
}
