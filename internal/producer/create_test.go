package producer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestCreate(t *testing.T) {
	b := setupBare(t)
	for range 2 {
		if err := b.create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"test-jobs", "test-jobs-first", "test-jobs-ondemand", "test-jobs-poison"}, b.server.Queues()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"test-jobs", "test-payloads", "test-workers"}, b.server.Containers()); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

func TestCreateRefused(t *testing.T) {
	for code, fatal := range map[string]bool{
		"AuthorizationPermissionMismatch": false,
		"InsufficientAccountPermissions":  false,
		"AuthorizationFailure":            false,
		"AuthenticationFailed":            true,
	} {
		b := setupBare(t)
		b.server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: code}}
		})
		err := b.create(t.Context())
		if got := err != nil; got != fatal {
			t.Errorf("Create refused with %s = %v, want an error: %t", code, err, fatal)
		}
		if fatal && !strings.HasPrefix(err.Error(), "create ") {
			t.Errorf("Create refused with %s = %v, want what was to be created", code, err)
		}
		if counts := b.server.Counts(); !fatal && counts[storage.OpCreateContainer]+counts[storage.OpCreateQueue] != 7 {
			t.Errorf("calls = %v, want all seven tried", counts)
		}
	}
}
