package presence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// Listed is a heartbeat as it was read. In a listing it is without the ids of the jobs.
type Listed struct {
	Presence

	// Age is how long ago it was written, by the service's clock.
	Age time.Duration
}

// List returns the heartbeats of all workers. It costs one call for each 5,000 of
// them.
func (s *Store) List(ctx context.Context) ([]Listed, error) {
	all, err := s.list(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return all, nil
}

// ListVM returns the heartbeats of the workers of a VM, whose name is compared
// without case. A heartbeat of an old version, which does not state its VM's name,
// is not among them.
//
// Blobs are named after the VM, as it was spelled when they were written, so one call
// with the name as a prefix finds them. If it finds none, ListVM searches all heartbeats
// for another spelling.
func (s *Store) ListVM(ctx context.Context, vm string) ([]Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, prefix := range []string{vm + "-", ""} {
		found, err := s.list(ctx, prefix)
		if err != nil {
			return nil, fmt.Errorf("list workers of %s: %w", vm, err)
		}
		found = slices.DeleteFunc(found, func(p Listed) bool { return !strings.EqualFold(p.VM, vm) })
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// isHeartbeat reports whether a blob may be a heartbeat: each has a version, and no folder
// in its name. Blobs of others would count as workers of an old version.
func isHeartbeat(b blobs.Blob) bool {
	if b.Name == "" || strings.Contains(b.Name, "/") {
		return false
	}
	for key, value := range b.Metadata {
		if strings.EqualFold(key, "v") && value != nil {
			return true
		}
	}
	return false
}

// list returns the heartbeats whose blob name starts with prefix.
func (s *Store) list(ctx context.Context, prefix string) ([]Listed, error) {
	var all []Listed
	for b, err := range s.blobs.List(ctx, prefix, true) {
		if err != nil {
			return nil, err
		}
		if isHeartbeat(b) {
			all = append(all, Listed{Presence: parse(b.Name, b.Metadata), Age: b.Age()})
		}
	}
	return all, nil
}
