package conformance

import (
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

func TestEmulatorInProcess(t *testing.T) {
	s := storage.New(storage.Options{})
	s.SetFullPages() // pages are counted
	run(t, target{connectionString: s.ConnectionString(), transport: s.Transport(), clock: virtualTime})
}

func TestEmulatorOverLoopback(t *testing.T) {
	s := storage.New(storage.Options{})
	s.SetFullPages() // pages are counted
	connectionString, err := s.Listen(storage.Addresses{})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	run(t, target{connectionString: connectionString})
}
