package winsetup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Remove stops the workers, which hand their jobs over, and removes all that any
// version put on the VM. It continues after a failed step.
func (s *Setup) Remove(ctx context.Context) error {
	if self, err := os.Executable(); err == nil && strings.HasPrefix(self, s.Programs+string(filepath.Separator)) {
		return fmt.Errorf("%s cannot remove the folder that it runs from: copy it somewhere else and run that", self)
	}
	var failures []error
	for _, name := range allServices() {
		if err := s.drop(ctx, name); err != nil {
			failures = append(failures, err)
		}
	}
	if err := s.dropResume(); err != nil {
		failures = append(failures, err)
	}
	for _, folder := range []string{s.Programs, s.Data} {
		if err := s.insist(ctx, func() error { return removeTree(folder) }); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("some of the worker is left on this VM: %w", errors.Join(failures...))
	}
	s.say("removed; nothing of the worker is left on this VM")
	return nil
}
