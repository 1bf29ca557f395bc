package checkpoint

import (
	"net/url"
	"strings"

	"github.com/spotworker/spotworker/job"
)

// needsOf returns the needs of a state as a record can have them. Longer ones are left out, and
// then a worker finds out what the state needs when it has fetched it.
func needsOf(s Snapshot) string {
	if len(s.Needs) > job.MaxNeeds {
		return ""
	}
	return s.Needs
}

// boundTo is the part of a state's hash that stands before its needs. A worker that does not
// know the needs keeps them when it records another state, for which they mean nothing.
func (r *Record) boundTo() string { return r.StateHash[:min(len(r.StateHash), 16)] }

// stateNeeds is what a worker must have for the state, behind the start of its hash. It
// follows the hash in fields.
func stateNeeds(key string) field {
	return field{key,
		func(r *Record) string {
			if r.StateNeeds == "" || !r.HasState() {
				return ""
			}
			return r.boundTo() + "," + url.PathEscape(r.StateNeeds)
		},
		func(r *Record, v string) error {
			hash, needs, _ := strings.Cut(v, ",")
			if r.HasState() && hash == r.boundTo() {
				r.StateNeeds, _ = url.PathUnescape(needs) // a damaged one counts as none
			}
			return nil
		}}
}
